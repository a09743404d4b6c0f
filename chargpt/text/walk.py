"""All files below a folder."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

HIDDEN, BROKEN = "hidden files and folders skipped", "broken links skipped"


def walk(folder: Path, *, skipped: Counter[str], skipped_folders: frozenset[str] = frozenset()) -> Iterator[Path]:
    """Every file below `folder` in a stable order. Links to folders are not followed.

    `skipped` counts what is left out for the user to know: HIDDEN files and folders, and BROKEN links. Folders with a name in
    `skipped_folders` are ignored.
    """
    with os.scandir(folder) as entries:
        entries = sorted(entries, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.startswith("."):
            skipped[HIDDEN] += 1
        elif entry.is_dir(follow_symlinks=False):
            if entry.name not in skipped_folders:
                yield from walk(Path(entry.path), skipped=skipped, skipped_folders=skipped_folders)
        elif entry.is_symlink() and not os.path.exists(entry.path):  # its target is missing, or it points to itself
            skipped[BROKEN] += 1
        elif entry.is_file():
            yield Path(entry.path)
