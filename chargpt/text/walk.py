"""All files below a folder."""

import os
from collections.abc import Iterator
from pathlib import Path


def walk(folder: Path, *, hidden: list[Path], skipped_folders: frozenset[str] = frozenset()) -> Iterator[Path]:
    """Every file below `folder` in a stable order. Links to folders are not followed.

    Hidden files and folders are appended to `hidden` instead; folders with a name in `skipped_folders` are ignored.
    """
    with os.scandir(folder) as entries:
        entries = sorted(entries, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.startswith("."):
            hidden.append(Path(entry.path))
        elif entry.is_dir(follow_symlinks=False):
            if entry.name not in skipped_folders:
                yield from walk(Path(entry.path), hidden=hidden, skipped_folders=skipped_folders)
        elif entry.is_file():
            yield Path(entry.path)
