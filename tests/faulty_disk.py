"""A disk that fails at a chosen system call, or whose machine loses its power there."""

import errno
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

MODES = ("crash", "error", "power cut loses data", "power cut loses names")
CALLS = ("open", "write", "fsync", "rename", "replace", "mkdir", "rmdir", "unlink")


class PowerCut(BaseException):
    """What a save meets when its process or its machine has died: from then on no call does anything."""


class Disk:
    """Stands before the system calls of a save and makes the `fatal`-th one fail, in one of the MODES.

    After a power cut the disk holds as little as it may: of files that were not fsynced no data, and, in the last mode, of
    folders that were not fsynced no new names. What was removed is gone at once: that is allowed, too.
    """

    def __init__(self, mode: str, fatal: int, patch: pytest.MonkeyPatch) -> None:
        self.mode, self.fatal, self.count, self.dead = mode, fatal, 0, False
        self.real = {name: getattr(os, name) for name in CALLS}
        self.real["fsync"] = lambda _: None  # noted below, and only noted
        self.paths: dict[int, str] = {}
        self.unsynced_files: dict[int, int] = {}  # descriptor -> a copy of it that outlives closing
        self.unsynced_names: list[tuple[str, str, Callable[[str], object]]] = []  # before, now, and what takes it back
        for name in CALLS:
            patch.setattr(os, name, lambda *given, _name=name, **named: self.call(_name, *given, **named))

    def call(self, name: str, *given: Any, **named: Any) -> Any:
        if self.dead:
            raise PowerCut
        self.count += 1
        if self.count == self.fatal:
            if name == "write":  # a write that fails may have written a part
                self.real["write"](given[0], given[1][: len(given[1]) // 2])
                self.note(name, given)
            self.fail()
        replaced = Path(given[1]).read_bytes() if name == "replace" and os.path.isfile(given[1]) else None
        result = self.real[name](*given, **named)
        self.note(name, given, result, replaced)
        return result

    def note(self, name: str, given: tuple, result: Any = None, replaced: bytes | None = None) -> None:
        """Remember what of a call is not on the disk before an fsync."""
        if name == "open":
            self.paths[result] = str(given[0])
            if given[1] & os.O_CREAT:
                self.unsynced_names.append(("", str(given[0]), self.real["unlink"]))
        elif name == "write" and given[0] not in self.unsynced_files:
            self.unsynced_files[given[0]] = os.dup(given[0])
        elif name == "fsync":
            os.close(self.unsynced_files.pop(given[0], None) or os.dup(given[0]))
            self.sync_names(self.paths[given[0]])
        elif name == "mkdir":
            self.unsynced_names.append(("", str(given[0]), shutil.rmtree))
        elif name in ("rename", "replace"):
            old, new = map(str, given)

            def undo(path: str) -> None:
                os.rename(path, old)
                if replaced is not None:
                    Path(path).write_bytes(replaced)

            self.unsynced_names.append((old, new, undo))

    def sync_names(self, folder: str) -> None:
        """The names in a folder are on the disk; what lies below one that was renamed has its new path for good."""
        synced = [entry for entry in self.unsynced_names if os.path.dirname(entry[1]) == folder]
        kept = [entry for entry in self.unsynced_names if entry not in synced]
        for old, new, _ in synced:
            if old:
                kept = [(was, re.sub(f"^{re.escape(old)}/", f"{new}/", path), undo) for was, path, undo in kept]
        self.unsynced_names = kept

    def fail(self) -> None:
        if self.mode == "error":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.dead = True
        raise PowerCut

    def after(self) -> None:
        """What the disk shows once it runs again; to be called with the real system calls back in place."""
        for copy in self.unsynced_files.values():
            if self.mode.startswith("power cut"):
                os.ftruncate(copy, 0)
            os.close(copy)
        if self.mode == "power cut loses names":
            for _, path, undo in reversed(self.unsynced_names):
                with suppress(FileNotFoundError):  # removed since
                    undo(path)
