"""`python -m chargpt runs`: a line for each run: what it was trained on, its size, its loss and how far it is.

Only the small files of a run are read, none of its weights. A run that another process writes meanwhile is listed as it is.
"""

import dataclasses
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from chargpt.commands.common import aligned, print_json, verb_parser
from chargpt.formatting import one_line, shown
from chargpt.project import command, project_root
from chargpt.screen import log

if TYPE_CHECKING:  # a mistyped option is answered at once
    from chargpt.runs.checkpoint_schema import SavedState

WIDEST_TEXT = 32  # columns for the names of the texts


def main(argv: Sequence[str]) -> int:
    """Print the list that the options in `argv` ask for. Returns the exit code. Raises UserError."""
    parser = verb_parser(
        "runs",
        "[RUN ...] [--json]",
        "List the runs in checkpoints/, the one with the newest checkpoint first: the text, the number of parameters, the "
        "validation loss of the best checkpoint in nats per character, the time of the newest checkpoint, the size on disk, "
        "and how many of the planned steps are done. A star marks the lowest loss of runs of the same text and vocabulary.",
    )
    parser.add_argument(
        "runs", metavar="RUN", nargs="*", help="runs, their paths, or patterns such as 'poems*' (default: all in checkpoints/)"
    )
    states = "a JSON object for each run, with its state: training, stopped (also by a kill) or finished"
    parser.add_argument("--json", action="store_true", help=states)
    options, checkpoints = parser.parse_intermixed_args(argv), project_root() / "checkpoints"
    from chargpt.runs.load import expand_patterns, find_run, run_folders

    names = expand_patterns(options.runs, checkpoints)
    folders = [find_run(name, checkpoints) for name in names] if names else run_folders(checkpoints)
    runs, problems = found_in(folders)
    if options.json:
        for run in runs:
            print_json(dataclasses.asdict(run))
        for problem in problems:
            log(problem)
    elif folders:
        print(*table(runs), *problems, sep="\n")
    else:
        print(f"There is no run in {shown(checkpoints)} yet; {command('train')} trains one.")
    return 0


@dataclass(frozen=True)
class Listed:
    """A run as the list shows it. `main` prints it as JSON."""

    run: str
    state: str  # training, finished, or stopped: also one whose process was killed
    step: int
    steps: int  # that are planned
    model: str  # which of several; empty for the only one
    loss: float | None  # of the best checkpoint, nats per character
    text: list[str]
    fingerprint: str
    parameters: str
    saved: str  # when the newest checkpoint was, as are times of ISO 8601
    recorded: str  # when something was recorded last: a sign of life
    bytes: int  # on the disk

    @classmethod
    def of(cls, folder: Path) -> "Listed | None":
        """The run in `folder`; None if it has no checkpoint yet. Raises CheckpointError."""
        from chargpt.files import is_locked
        from chargpt.runs.checkpoint import newest_of, newest_stage, stage_folder, steps
        from chargpt.runs.metrics import METRICS

        if not steps(folder):
            return None
        saved, state, size = newest_of(stage_folder(folder, newest_stage(folder, learned=True)), _read)[0]
        files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
        recorded = max((path.stat().st_mtime for path in files if path.name == METRICS), default=saved)
        is_finished = state.is_finished and state.stage.is_last
        return cls(
            run=folder.name,
            state="training" if is_locked(folder) else "finished" if is_finished else "stopped",
            step=state.progress.step,
            steps=state.stage.length.steps,
            model=state.stage.name,
            loss=state.progress.best_loss,
            text=state.text_names,
            fingerprint=state.fingerprint,
            parameters=size,
            saved=_time(saved),
            recorded=_time(recorded),
            bytes=sum(path.stat().st_size for path in files),
        )


def found_in(folders: Sequence[Path]) -> tuple[list[Listed], list[str]]:
    """These runs, newest first, and a line for each that cannot be read. Never raises for what a folder may hold."""
    from chargpt.runs.checkpoint_schema import CheckpointError

    found, problems = [], []
    for folder in folders:
        try:
            if (run := Listed.of(folder)) is None:
                problems.append(f"{shown(folder.name)}: has no checkpoint yet")
            else:
                found.append(run)
        except (CheckpointError, OSError) as error:  # the latter of a run that is removed meanwhile
            problems.append(one_line(error))
    found.sort(key=lambda run: run.run)
    return sorted(found, key=lambda run: run.saved, reverse=True), problems


def table(runs: Sequence[Listed]) -> list[str]:
    """The lines of the list of these runs."""
    losses: dict[str, list[float]] = {}  # of the runs of each text and vocabulary
    for run in runs:
        losses.setdefault(run.fingerprint, []).append(math.inf if run.loss is None else run.loss)
    rows = [["run", "text", "parameters", "loss", "saved", "size", "steps"]]
    for run in runs:
        others = losses[run.fingerprint]
        star = "*" if len(others) > 1 and run.loss == min(others) else " "
        early = "ended early" * (run.state == "finished" and run.step < run.steps)
        done = ", ".join(
            filter(None, [f"{run.step:,} of {run.steps:,}", run.model, "training" * (run.state == "training"), early])
        )
        first, *more = run.text
        text = first + (f" and {len(more):,} more" if more else "")
        text = text if len(text) <= WIDEST_TEXT else f"{text[: WIDEST_TEXT - 1]}…"
        loss = "" if run.loss is None else f"{run.loss:.4f}{star}"
        saved = run.saved[:16].replace("T", " ")
        rows.append([run.run, text, run.parameters, loss, saved, f"{run.bytes / 1e6:,.0f} MB", done])
    note = "newest first; loss: validation loss of the best checkpoint, nats per character; *: the lowest of its text and split"
    return [*aligned(rows, right=("parameters", "loss", "size")), note] if runs else []


def _time(seconds: float) -> str:
    """A time in the time zone of this machine, as in ISO 8601."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")


def _read(path: Path) -> "tuple[float, SavedState, str]":
    """Of a checkpoint: when it was saved, its state, and the number of parameters, of whichever model.py has trained it."""
    from chargpt.project import STATE
    from chargpt.runs.checkpoint import numbers_in, read_state
    from chargpt.standard import model_source

    state, size = read_state(path), "?"
    with suppress(OSError, ValueError):  # its weights cannot be read
        is_ours = state.model_source == model_source()
        size = f"{state.parameters if is_ours else numbers_in(path):,}"
    return (path / STATE).stat().st_mtime, state, size
