"""`python -m chargpt runs`: a line for each run: what it was trained on, its size, its loss and how far it is.

Only the small files of a run are read, none of its weights. A run that another process writes meanwhile is listed as it is.
"""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from chargpt.commands.frame import aligned, verb_parser
from chargpt.project import command, project_root
from chargpt.terminal import one_line, shown

if TYPE_CHECKING:  # a mistyped option is answered at once
    from chargpt.runs.checkpoint_schema import SavedState

WIDEST_TEXT = 32  # columns for the names of the texts


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
    options, checkpoints = parser.parse_intermixed_args(argv), project_root() / "checkpoints"
    from chargpt.runs.load import expand_patterns, find_run, run_folders

    names = expand_patterns(options.runs, checkpoints)
    folders = [find_run(name, checkpoints) for name in names] if names else run_folders(checkpoints)
    if folders:
        print(*table(folders), sep="\n")
    else:
        print(f"There is no run in {shown(checkpoints)} yet; {command('train')} trains one.")
    return 0


def table(folders: Sequence[Path]) -> list[str]:
    """The lines of the list of these runs: newest first, then what cannot be read. Never raises for what a folder may hold."""
    from chargpt.runs.checkpoint import newest_of, newest_stage, stage_folder, steps
    from chargpt.runs.checkpoint_schema import CheckpointError

    found, problems = [], []
    for folder in folders:
        try:
            if not steps(folder):
                problems.append(f"{shown(folder.name)}: has no checkpoint yet")
                continue
            place = stage_folder(folder, newest_stage(folder, learned=True))
            saved, state, size = newest_of(place, _read)[0]
            found.append((-saved, folder.name, state, size))
        except CheckpointError as error:
            problems.append(one_line(error))
    losses: dict[str, list[float]] = {}  # of the runs of each text and vocabulary
    for _, _, state, _ in found:
        loss = math.inf if state.progress.best_loss is None else state.progress.best_loss
        losses.setdefault(state.fingerprint, []).append(loss)
    rows = [["run", "text", "parameters", "loss", "saved", "steps"]]
    for saved, name, state, size in sorted(found, key=lambda one: one[:2]):
        progress, others = state.progress, losses[state.fingerprint]
        star = "*" if len(others) > 1 and progress.best_loss == min(others) else " "
        length = state.stage.length.steps
        done = f"{progress.step:,} of {length:,}"
        done += f", {state.stage.name}" * state.stage.is_one_of_several
        if progress.step < length and state.is_finished:
            done += ", ended early"
        first, *more = state.text_names
        text = first + (f" and {len(more):,} more" if more else "")
        text = text if len(text) <= WIDEST_TEXT else f"{text[: WIDEST_TEXT - 1]}…"
        saved_at = time.strftime("%Y-%m-%d %H:%M", time.localtime(-saved))
        loss_shown = "" if progress.best_loss is None else f"{progress.best_loss:.4f}{star}"
        rows.append([name, text, size, loss_shown, saved_at, done])
    note = "newest first; loss: validation loss of the best checkpoint, nats per character; *: the lowest of its text and split"
    return [*([*aligned(rows, right=("parameters", "loss")), note] if found else []), *problems]


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
