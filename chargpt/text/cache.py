"""Encoded texts on disk. An entry is named by a hash of what was read and how, so that it can never be stale.

    FOLDER/<fingerprint>/    train.ids, val.ids, counts.int64, entry.json; published whole, never changed afterwards
    FOLDER/seen/<request>    the fingerprint that a request led to: files as they stood on disk, and settings
    FOLDER/partial/          an entry being written
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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from chargpt.terminal import shown
from chargpt.text.tokenizer import Tokenizer

SYNC_EVERY = 2**24  # bytes


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An encoded text."""

    fingerprint: str  # SHA-256 of the content and of every setting that decides the ids and the split
    tokenizer: Tokenizer
    train: np.ndarray  # (n_train,) ids, uint8, uint16 or uint32, mapped from disk
    val: np.ndarray  # (n_val,) likewise; shares nothing with train
    counts: np.ndarray  # (vocab_size,) int64: how often each id stands in both
    distinct: int  # characters before any were folded
    notes: list[str]  # what the user should know about how it was read

    @property
    def characters(self) -> int:
        """In both parts together; bytes, if the vocabulary is those."""
        return len(self.train) + len(self.val)


def fingerprint_of(*parts: Any) -> str:
    """The SHA-256 of anything that JSON can write, hexadecimal."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class Cache:
    """A folder of entries. Several processes may use it at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen = folder / "seen"
        self._partial = folder / "partial"

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
            return Entry(
                fingerprint=fingerprint,
                tokenizer=tokenizer,
                train=_mapped(folder / "train.ids", tokenizer.dtype, meta["n_train"]),
                val=_mapped(folder / "val.ids", tokenizer.dtype, meta["n_val"]),
                counts=_mapped(folder / "counts.int64", np.dtype("<i8"), tokenizer.vocab_size),
                distinct=meta["distinct"],
                notes=meta["notes"],
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

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
            shutil.rmtree(self._partial, ignore_errors=True)  # what a killed process left, since the lock is ours
            yield

    def publish(self, fingerprint: str, *, counts: np.ndarray, meta: dict[str, Any], write: Callable[..., None]) -> None:
        """Make an entry whose ids `write(train=file, val=file)` writes. The lock must be held.

        It appears whole and on the disk or not at all: written aside, synced, renamed. Raises OSError when it cannot be.
        """
        shutil.rmtree(self.folder / fingerprint, ignore_errors=True)  # `open` found it damaged
        try:
            self._partial.mkdir()
            with _SyncedFile(self._partial / "train.ids") as train, _SyncedFile(self._partial / "val.ids") as val:
                write(train=train, val=val)
            with _SyncedFile(self._partial / "counts.int64") as file:
                file.write(memoryview(counts.astype("<i8")))
            with _SyncedFile(self._partial / "entry.json") as file:
                file.write(memoryview(json.dumps(meta).encode()))
            _sync_folder(self._partial)
            self._partial.rename(self.folder / fingerprint)
            _sync_folder(self.folder)
        finally:
            shutil.rmtree(self._partial, ignore_errors=True)


class _SyncedFile:
    """A new file that is on the disk when it closes; most of it on the way there already, while the rest is being made."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "xb")
        self._thread = ThreadPoolExecutor(1)
        self._syncing = self._thread.submit(lambda: None)
        self._unsynced = 0

    def write(self, data: memoryview) -> None:
        self._file.write(data)
        self._unsynced += data.nbytes
        if self._unsynced >= SYNC_EVERY:
            self._unsynced = 0
            self._syncing.result()  # raises what went wrong: the system reports an error in writing only once
            self._syncing = self._thread.submit(self._sync, self._file.tell())

    def _sync(self, end: int) -> None:
        os.fsync(self._file.fileno())
        if hasattr(os, "posix_fadvise"):
            # Nobody reads gigabytes of ids soon; the memory that caches them is better left to the text, and to others.
            os.posix_fadvise(self._file.fileno(), 0, end, os.POSIX_FADV_DONTNEED)

    def __enter__(self) -> "_SyncedFile":
        return self

    def __exit__(self, *_: object) -> None:
        with self._thread, self._file:
            self._syncing.result()
            self._file.flush()
            os.fsync(self._file.fileno())


def _sync_folder(path: Path) -> None:
    """Put the names in a folder on the disk: without it a power cut may undo a rename."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _mapped(path: Path, dtype: np.dtype, length: int) -> np.ndarray:
    """The ids in a file, mapped read-only. Raises ValueError if there are not `length` of them."""
    if path.stat().st_size != length * dtype.itemsize:
        raise ValueError(f"{path}: not {length} ids")
    return np.memmap(path, dtype, mode="r") if length else np.empty(0, dtype)
