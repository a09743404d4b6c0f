"""Encoded texts on disk. An entry is named by a hash of what was read and how, so that it can never be stale.

    FOLDER/<fingerprint>/    train.ids, val.ids, counts.int64, entry.json; published whole, never changed afterwards
    FOLDER/seen/<request>    the fingerprint that a request led to: files as they stood on disk, and settings
    FOLDER/partial-*/        an entry being written
    FOLDER/lock              held while one is written

Reading gigabytes only to learn that nothing has changed takes seconds, so `seen` remembers what files, by name, inode,
size and times, led to. `Source.signature` says why that can be believed.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from chargpt.errors import UserError, shown
from chargpt.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An encoded text."""

    fingerprint: str  # SHA-256, hexadecimal
    tokenizer: Tokenizer
    train: np.ndarray  # (n_train,) ids of tokenizer.dtype, mapped from disk
    val: np.ndarray  # (n_val,) likewise
    counts: np.ndarray  # (vocab_size,) int64: how often each id stands in both
    distinct: int  # characters before any were folded
    notes: list[str]  # what the user should know about the reading of it


def fingerprint_of(*parts: Any) -> str:
    """The SHA-256 of anything that JSON can write, hexadecimal."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class Cache:
    """A folder of entries. Several processes may use it at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen = folder / "seen"

    def recall(self, request: str) -> Entry | None:
        """The entry that `request` led to before, if it is still there."""
        try:
            return self.open((self._seen / request).read_text())
        except FileNotFoundError:
            return None

    def remember(self, request: str, fingerprint: str) -> None:
        """Let `recall` find the entry by `request` from now on."""
        self._seen.mkdir(exist_ok=True)
        aside = self._seen / f"{request}.{os.getpid()}"
        aside.write_text(fingerprint)
        aside.replace(self._seen / request)

    def open(self, fingerprint: str) -> Entry | None:
        """The entry of that name; None when there is none or it is not whole."""
        folder = self.folder / fingerprint
        try:
            meta = json.loads((folder / "entry.json").read_text())
            tokenizer = Tokenizer.from_json(meta["tokenizer"])
            train, val = (_mapped(folder / name, tokenizer.dtype, meta[name]) for name in ("train.ids", "val.ids"))
            counts = np.fromfile(folder / "counts.int64", "<i8")
            if len(counts) != tokenizer.vocab_size:
                return None
            notes, distinct = meta["notes"], meta["distinct"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return Entry(
            fingerprint=fingerprint, tokenizer=tokenizer, train=train, val=val, counts=counts, distinct=distinct, notes=notes
        )

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Wait until no other process writes here, then keep others waiting. Ends with the process, however that ends."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "lock", "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"waiting for another run to finish encoding in {shown(self.folder)}", file=sys.stderr)
                fcntl.flock(lock, fcntl.LOCK_EX)
            for orphan in self.folder.glob("partial-*"):  # of a process that was killed, since the lock is ours
                shutil.rmtree(orphan, ignore_errors=True)
            yield

    def publish(self, entry: Entry, write: Callable[[BinaryIO, BinaryIO], None]) -> None:
        """Make an entry whose ids `write(train, val)` writes to the two files it is given. The lock must be held.

        It appears whole and on the disk, or not at all: written aside, synced, renamed. Raises OSError.
        """
        partial = Path(tempfile.mkdtemp(prefix="partial-", dir=self.folder))
        try:
            with open(partial / "train.ids", "wb") as train, open(partial / "val.ids", "wb") as val:
                write(train, val)
                for file in (train, val):
                    file.flush()
                    os.fsync(file.fileno())
            ...
        finally:
            shutil.rmtree(partial, ignore_errors=True)
