"""`python -m chargpt remove`: deletes runs, parts of them or caches, after a question. Nothing else does, but `--overwrite`."""

import os
import re
import sys
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from chargpt.commands.common import verb_parser
from chargpt.commands.runs import table
from chargpt.errors import UserError, what_to_do
from chargpt.files import LOCK_NAME, FolderLock, discard, sync_folder
from chargpt.formatting import plural, shown
from chargpt.notices import Kind
from chargpt.project import project_root, user_cache_folder
from chargpt.runs.checkpoint import has_steps, keep_best_weights, newest_stage, run_of_stage, stage_folder
from chargpt.runs.listing import RunState
from chargpt.runs.load import expand_patterns, find_run, places_of, run_folders
from chargpt.runs.run import check_own, is_left_behind, lock_run, set_aside, settle
from chargpt.screen import log, notice


def main(argv: Sequence[str]) -> int:
    """Delete what the options in `argv` name. Returns the exit code. Raises UserError."""
    options = _options(argv)
    folders = _chosen(options.runs, project_root() / "checkpoints", older_than=options.older_than)
    locks = [lock_run(folder) for folder in folders]
    caches = [project_root() / "data" / "cache", user_cache_folder() / "chargpt"] if options.cache else []
    caches = [path for path in caches if path.is_dir()]
    runs = plural(len(folders), "run")
    runs = f"all but the best weights of {runs}" if options.keep_best else f"{runs} with all checkpoints"
    what = [runs] * bool(folders) + [shown(path) for path in caches]
    if not what or not (options.yes or _agrees(folders, " and ".join(what))):
        log("nothing is removed")
        return 0
    for folder, lock in zip(folders, locks):
        (_keep_best if options.keep_best else _remove)(folder, lock)
    for path in caches:
        discard(path)
        notice(Kind.REMOVED, shown(path))
    return 0


def _options(argv: Sequence[str]) -> Namespace:
    """The options in `argv`. Raises UserError if they name nothing."""
    about = """Delete runs with all their checkpoints, after a question. A run that is being trained is refused."""
    parser = verb_parser("remove", "[RUN ...] [--older-than TIME] [--keep-best] [--cache] [--yes]", about)
    add = parser.add_argument
    add("runs", nargs="*", metavar="RUN", help="runs in checkpoints/, their paths, or patterns such as 'poems*'")
    older = "of these runs, or of all, those whose newest checkpoint is older than this, such as 12h, 7d or 4w"
    add("--older-than", type=_seconds, metavar="TIME", help=older)
    best = "of each run only what --resume needs: the best weights stay, which write and from which another run can begin"
    add("--keep-best", action="store_true", help=f"delete {best}")
    add("--cache", action="store_true", help="delete encoded texts, compiled code and measured speeds, which are made again")
    add("--yes", action="store_true", help="delete without a question")
    options = parser.parse_intermixed_args(argv)
    if not (options.runs or options.older_than or options.cache):
        raise UserError("RUN: none given; name a run, or give --older-than TIME or --cache")
    return options


def _chosen(names: Sequence[str], checkpoints: Path, *, older_than: float | None) -> list[Path]:
    """The folders of these runs, or of all, whose newest checkpoint is older than so many seconds. Raises UserError."""
    if older_than is not None and not names:
        every = [folder for folder in run_folders(checkpoints) if has_steps(folder) and not folder.is_symlink()]
        names = [folder.name for folder in every if _is_older(folder, older_than)]
    folders = [run_to_remove(name, checkpoints) for name in expand_patterns(names, checkpoints)]
    return [folder for folder in dict.fromkeys(folders) if _is_older(folder, older_than)]


def _agrees(folders: Sequence[Path], what: str) -> bool:
    """Whether a person at a terminal agrees to delete this. Raises UserError without one."""
    if not sys.stdin.isatty():
        raise UserError(f"remove: needs a terminal to ask about {what}; add --yes to delete without a question")
    print(*table([*map(RunState.of, folders)]), sep="\n")
    print(f"Delete {what}? [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().casefold() in ("y", "yes")


def _remove(folder: Path, lock: FolderLock) -> None:
    try:
        gone = set_aside(folder, lock, target=folder)
        sync_folder(gone.parent)
    except OSError as error:
        raise UserError(f"{shown(folder)}: not removed ({error.strerror}); {what_to_do(error)}") from None
    discard(gone)
    notice(Kind.REMOVED, f"{shown(folder)}" + (f"; delete what is left of it: {shown(gone)}" if gone.exists() else ""))


def _keep_best(folder: Path, lock: FolderLock) -> None:
    before = RunState.of(folder).bytes
    for problem in keep_best_weights(stage_folder(folder, newest_stage(folder, learned=True))):
        log(problem, Kind.WARNING)
    lock.release()
    freed = (before - RunState.of(folder).bytes) / 1e6
    notice(Kind.REMOVED, f"{shown(folder)}: all but its best weights, {freed:,.1f} MB")


def _seconds(text: str) -> float:
    """An argparse type: a time such as 12h, 7d or 4w."""
    if not (found := re.fullmatch(r"([0-9]{1,6})([hdw])", text)):
        raise ArgumentTypeError(f"{text!r} given; use a time such as 12h, 7d or 4w")
    return int(found[1]) * {"h": 3600.0, "d": 86400.0, "w": 604800.0}[found[2]]


def _is_older(folder: Path, seconds: float | None) -> bool:
    """Whether the newest checkpoint of a run is older than so many seconds; any run is if that is None."""
    saved = RunState.of(folder).saved
    return seconds is None or bool(saved) and time.time() - datetime.fromisoformat(saved).timestamp() > seconds


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
