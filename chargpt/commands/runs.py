"""`python -m chargpt runs`: a line for each run: what it was trained on, its size, its loss and how far it is.

Only the small files of a run are read, none of its weights. A run that another process writes meanwhile is listed as it is.
"""

import math
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chargpt.commands.frame import aligned, run_verb, verb_parser
from chargpt.project import command, project_root
from chargpt.runs.checkpoint_schema import CheckpointError
from chargpt.terminal import one_line, shown
from chargpt.text.sources import DEFAULT

if TYPE_CHECKING:  # imports torch, and --help shall be quick
    from chargpt.runs.checkpoint_schema import SavedState

WIDEST_TEXT = 32  # columns for the names of the texts
ATTEMPTS = 3  # to read a run whose checkpoints another process replaces meanwhile
HEAD = ("run", "text", "parameters", "loss", "saved", "steps")


@dataclass(frozen=True, kw_only=True)
class Listed:
    """What the list says of a run."""

    name: str
    state: "SavedState | None" = None  # None: no checkpoint can be read
    saved_at: float = 0.0  # when the newest checkpoint was written, seconds since 1970
    problem: str = ""

    @property
    def loss(self) -> float | None:
        """The validation loss of the best checkpoint, nats per character; None before the first evaluation."""
        return None if self.state is None else self.state.progress.best_loss


def main(argv: Sequence[str]) -> int:
    """Print the list that the options in `argv` ask for. Returns the exit code. Raises UserError."""
    parser = verb_parser(
        "runs",
        "[RUN ...]",
        "List the runs in checkpoints/, the one with the newest checkpoint first: the text, the number of "
        "parameters, the validation loss of the best checkpoint in nats per character, the time of the newest checkpoint, and "
        "how many of the planned steps are done. A star marks the lowest loss of runs of the same text and vocabulary.",
    )
    parser.add_argument(
        "runs", metavar="RUN", nargs="*", help="runs, their paths, or patterns such as 'poems*' (default: all in checkpoints/)"
    )
    return run_verb(parser.parse_intermixed_args, argv, print_runs)


def print_runs(options: Namespace) -> None:
    """Print the list."""
    from chargpt.runs.load import expand_patterns, find_run, run_folders

    checkpoints = project_root() / "checkpoints"
    names = expand_patterns(options.runs, checkpoints)
    folders = [find_run(name, checkpoints) for name in names] if names else run_folders(checkpoints)
    if not folders:
        print(f"There is no run in {shown(checkpoints)} yet; {command('train')} trains one.")
        return
    print(*table([read_run(folder) for folder in folders]), sep="\n")


def read_run(folder: Path) -> Listed:
    """The newest state of the run in `folder` that can be read. Never raises for what a folder may hold."""
    from chargpt.runs.checkpoint import STATE, newest_stage, read_state, stage_folder, steps

    problem = "has no checkpoint yet"
    for _ in range(ATTEMPTS):
        try:
            for path in reversed(steps(stage_folder(folder, newest_stage(folder, learned=True)))):
                try:
                    return Listed(name=folder.name, state=read_state(path), saved_at=(path / STATE).stat().st_mtime)
                except (CheckpointError, OSError) as error:
                    problem = str(error)
        except CheckpointError as error:
            problem = str(error)
    return Listed(name=folder.name, problem=problem)


def table(runs: Sequence[Listed]) -> list[str]:
    """The lines of the list: newest first, then what cannot be read."""
    newest_first = sorted(runs, key=lambda run: (-run.saved_at, run.name))
    read = [(run, run.state) for run in newest_first if run.state is not None]
    unread = [one_line(f"{run.name}: {run.problem}") for run in sorted(runs, key=lambda run: run.name) if run.state is None]
    if not read:
        return unread
    losses: dict[tuple[str, int], list[float]] = {}  # of the runs of each text and vocabulary
    for run, state in read:
        losses.setdefault(_text_key(state), []).append(math.inf if run.loss is None else run.loss)
    rows = []
    for run, state in read:
        of_text = losses[_text_key(state)]
        rows.append(_cells(run, state, star="*" if len(of_text) > 1 and run.loss == min(of_text) else " "))
    note = "newest first; loss: validation loss of the best checkpoint, nats per character; *: the lowest of its text and split"
    return [*aligned([HEAD, *rows], right=("parameters", "loss")), note, *unread]


def _text_key(state: "SavedState") -> tuple[str, int]:
    return state.fingerprint, state.tokenizer.vocab_size


def _cells(run: Listed, state: "SavedState", *, star: str) -> list[str]:
    from chargpt.runs.checkpoint_schema import NO_TEXT

    progress, train = state.progress, state.config.train
    done = f"{progress.step:,} of {train.max_steps:,}"
    if train.teachers and not train.student_gap:
        done = f"{done}, model {state.stage} of {train.teachers + 1}"
    if progress.step < train.max_steps and 0 < train.patience <= progress.without_gain:
        done += ", ended early"
    is_imported = state.fingerprint == NO_TEXT and not state.texts
    text = "unknown (imported)" if is_imported else _names(state.texts)
    saved_at = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.saved_at))
    return [run.name, text, f"{state.parameters:,}", "" if run.loss is None else f"{run.loss:.4f}{star}", saved_at, done]


def _names(texts: Sequence[str]) -> str:
    """The texts of a run, without their folders."""
    names = ["standard input" if text == "-" else Path(text).name or text for text in texts] or [DEFAULT]
    listed = names[0] + (f" and {len(names) - 1:,} more" if len(names) > 1 else "")
    return listed if len(listed) <= WIDEST_TEXT else f"{listed[: WIDEST_TEXT - 1]}…"
