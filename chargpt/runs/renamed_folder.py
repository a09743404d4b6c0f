"""The folder of a run, which a person may rename while the run is trained or its report is written."""

import os
from contextlib import suppress
from pathlib import Path


def names_beside(path: Path) -> list[str]:
    """The names in the parent of `path`; none if it cannot be listed."""
    with suppress(OSError):
        return os.listdir(path.absolute().parent)
    return []


class RenamedFolder:
    """A folder that a person may rename while it is used. Raises OSError if there is none at `path`."""

    def __init__(self, path: Path) -> None:
        self._path, self._identity = path, os.stat(path)

    @property
    def path(self) -> Path:
        """Where it is now, if that is beside where it was; otherwise where it was."""
        places = [self._path, *map(self._path.with_name, () if self._is_at(self._path) else names_beside(self._path))]
        self._path = next(filter(self._is_at, places), self._path)
        return self._path

    def _is_at(self, path: Path) -> bool:
        with suppress(OSError):
            return os.path.samestat(os.stat(path), self._identity)
        return False
