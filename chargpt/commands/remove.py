"""`python -m chargpt remove`: deletes runs, after a question. Nothing else deletes one, but `--overwrite`."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from chargpt.commands.common import verb_parser
from chargpt.commands.runs import table
from chargpt.errors import UserError, what_to_do
from chargpt.files import LOCK_NAME, discard, sync_folder
from chargpt.formatting import plural, shown
from chargpt.notices import Kind
from chargpt.project import project_root
from chargpt.runs.checkpoint import has_steps, run_of_stage
from chargpt.runs.listing import RunState
from chargpt.runs.load import expand_patterns, find_run, places_of
from chargpt.runs.run import check_own, is_left_behind, lock_run, set_aside, settle
from chargpt.screen import log, notice


def main(argv: Sequence[str]) -> int:
    """Delete the runs that the options in `argv` name. Returns the exit code. Raises UserError."""
    parser = verb_parser(
        "remove",
        "RUN [RUN ...] [--yes]",
        "Delete runs with all their checkpoints, after a question. A run that is being trained is refused.",
    )
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="runs in checkpoints/, their paths, or patterns such as 'poems*'"
    )
    parser.add_argument("--yes", action="store_true", help="delete without a question")
    options = parser.parse_intermixed_args(argv)
    checkpoints = project_root() / "checkpoints"
    folders = list(dict.fromkeys(run_to_remove(name, checkpoints) for name in expand_patterns(options.runs, checkpoints)))
    locks = [lock_run(folder) for folder in folders]
    if not options.yes:  # a person at a terminal has to agree
        runs = plural(len(folders), "run")
        if not sys.stdin.isatty():
            raise UserError(f"remove: needs a terminal to ask about {runs}; add --yes to delete without a question")
        print(*table([*map(RunState.of, folders)]), sep="\n")
        print(f"Delete {runs} with all checkpoints? [y/N] ", end="", flush=True)
        if sys.stdin.readline().strip().casefold() not in ("y", "yes"):
            log("nothing is removed")
            return 0
    for folder, lock in zip(folders, locks):
        try:
            gone = set_aside(folder, lock, target=folder)
            sync_folder(gone.parent)
        except OSError as error:
            raise UserError(f"{shown(folder)}: not removed ({error.strerror}); {what_to_do(error)}") from None
        discard(gone)
        notice(Kind.REMOVED, f"{shown(folder)}" + (f"; delete what is left of it: {shown(gone)}" if gone.exists() else ""))
    return 0


def run_to_remove(name: str, checkpoints: Path) -> Path:
    """The folder of the run of this name or path, or of what is left of one without a checkpoint. Raises UserError."""
    places = places_of(name, checkpoints)
    for place in places:
        settle(place)
    folder = next(filter(os.path.lexists, places), places[0])
    if folder.is_symlink():
        raise UserError(f"{name}: a link; to remove its run, give {shown(folder.resolve())}, and delete the link yourself")
    if has_steps(folder) and run_of_stage(folder) == folder or is_left_behind(folder) and (folder / LOCK_NAME).exists():
        check_own(folder)
        return folder
    raise UserError(f"{name}: a part of a run; to remove the whole run, give {shown(find_run(name, checkpoints))}")
