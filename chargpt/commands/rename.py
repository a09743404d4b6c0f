"""`python -m chargpt rename`: another name for a run; and what `copy` shares with it."""

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from chargpt.commands.common import verb_parser
from chargpt.errors import UserError, what_to_do
from chargpt.files import WINDOWS, is_locked, publish_file, sync_folder
from chargpt.formatting import shown
from chargpt.notices import Kind
from chargpt.project import REPORT, project_root
from chargpt.runs.load import find_run
from chargpt.runs.run import folder_of, lock_run, settle, typed_name
from chargpt.screen import notice

TITLE = "Training report: {}"  # of the page of a run, which is where a run holds its name


def main(argv: Sequence[str]) -> int:
    """Rename the run that the options in `argv` name. Returns the exit code. Raises UserError."""
    about = """Give a run another name, or move it to another folder on the same disk. While it trains, a run may get another
    name, under which it goes on, and may not be moved."""
    source, target = two_runs("rename", about, argv)
    is_moved = os.path.realpath(source.parent) != os.path.realpath(target.parent)
    if WINDOWS or (is_moved and is_locked(source)):  # Windows renames no folder with open files
        lock_run(source).release()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        os.rename(source, target)
        sync_folder(target.absolute().parent)
    except OSError as error:
        raise UserError(f"{shown(source)}: not renamed ({error.strerror}); {what_to_do(error)}") from None
    tell(Kind.RENAMED, source, target)
    return 0


def two_runs(verb: str, about: str, argv: Sequence[str]) -> tuple[Path, Path]:
    """The folder of the run that `argv` names, and that of its new name, which nothing has yet. Raises UserError."""
    parser = verb_parser(verb, "RUN NEW", about)
    parser.add_argument("run", metavar="RUN", help="a run in checkpoints/, or its path")
    parser.add_argument("new", metavar="NEW", help="the new name of a run in checkpoints/, or a path")
    options, checkpoints = parser.parse_args(list(argv)), project_root() / "checkpoints"
    source, target = find_run(options.run, checkpoints), folder_of(options.new, checkpoints)
    settle(target)
    if os.path.lexists(target):
        raise UserError(f"{shown(target)}: exists; give a name that is not taken")
    return source, target


def tell(what: Kind, source: Path, target: Path) -> None:
    """Say that the run in `source` is in `target` now, also on its page."""
    page, checkpoints = target / REPORT, project_root() / "checkpoints"
    if page.is_file():
        old, new = (TITLE.format(escape(folder.name)) for folder in (source, target))
        publish_file(page, page.read_text(encoding="utf-8").replace(old, new).encode())
    notice(what, f"{shown(source)} -> {shown(target)}; its name is {typed_name(target, checkpoints)}")
