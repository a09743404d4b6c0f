"""How an export gets its name: built aside, published whole or not at all, and nothing but an earlier export is replaced."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from chargpt.files import aside, discard, publishing, remove_left_behind, sync_folder
from chargpt.interrupt import ending_at_once
from chargpt.terminal import UserError, shown

# What the folder of an export may hold. --force replaces a folder only if it holds nothing else.
WRITTEN = re.compile(r"README\.md|[\w-]+\.json|[\w.-]+\.(safetensors|gguf|onnx)")

OLD = ".old"  # added to the name of an earlier export while the new one takes its place
START = 4096  # bytes of a file, which hold one of these if it is an earlier export
PAGE, WEIGHTS = b"`python -m chargpt export RUN --to html`", b'"block_size'

Result = TypeVar("Result")


def check_destination(destination: Path, *, is_folder: bool, force: bool) -> None:
    """Raise UserError unless `destination` is free, or `force` is given and it is an earlier export, a folder or a file."""
    if destination.name in ("", "..") or not destination.parent.is_dir():
        raise UserError(f"{shown(destination)}: its folder does not exist; create it, or give another DIR")
    if not os.path.lexists(destination):
        return
    if not force:
        raise UserError(f"{shown(destination)}: exists; choose another DIR, or replace it with --force")
    if destination.is_symlink() or not (destination.is_dir() if is_folder else destination.is_file()):
        raise UserError(f"{shown(destination)}: not a {'folder' if is_folder else 'file'}; choose another DIR")
    if not is_folder and not _is_export(destination):
        raise UserError(f"{shown(destination)}: no export wrote this file; choose another DIR")
    if is_folder:
        others = [path.name for path in destination.iterdir() if not (WRITTEN.fullmatch(path.name) and path.is_file())]
        if others:
            raise UserError(f"{shown(destination)}: holds {others[0]}, which no export writes; choose another DIR")


def _is_export(path: Path) -> bool:
    """Whether a file begins as the pages and the weights that exports write."""
    with open(path, "rb") as file:
        start = file.read(START)
    return (start.startswith(b"<!doctype html>") and PAGE in start) or (start[8:24] == b'{"__metadata__":' and WEIGHTS in start)


def publish(destination: Path, write: Callable[[Path], Result], *, is_folder: bool, force: bool) -> Result:
    """Call `write` with a free path beside `destination`, then give what it wrote that name. Returns what `write` returns.

    When `write` raises, or a signal ends the program, nothing is left and `destination` is as it was. What a killed export of
    this name left is removed. Raises UserError if it cannot be written, and as `check_destination` does, also for a destination
    that has appeared meanwhile.
    """
    remove_left_behind(destination.parent, re.compile(re.escape(destination.name)))
    old = aside(destination.with_name(f"{destination.name}{OLD}"))

    def undo() -> None:
        if os.path.isdir(old) and not os.path.lexists(destination):
            os.rename(old, destination)
        discard(aside(destination))
        discard(old)

    with ending_at_once(undo):
        try:
            with publishing(destination) as path:
                result = write(path)
                if path.is_dir():
                    sync_folder(path)
                check_destination(destination, is_folder=is_folder, force=force)
                if destination.is_dir():  # a folder cannot be replaced in one step
                    discard(old)
                    os.rename(destination, old)
        except OSError as error:
            problem = f"not written ({error.strerror or error}); use a folder with free space that you may write to"
            raise UserError(f"{shown(destination)}: {problem}") from None
        finally:
            undo()
    remove_left_behind(destination.parent, re.compile(re.escape(destination.name + OLD)))
    return result
