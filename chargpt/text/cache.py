"""Encoded texts on disk. The name of an entry is its fingerprint: a hash of the documents, of the vocabulary and of the split.

    FOLDER/<fingerprint>/    train.ids, val.ids, counts.int64, entry.json; written completely, never changed afterwards; and
                             made when first needed: train.suffixes (suffix_array.py), and what `EncodedText.kept` keeps
    FOLDER/seen/<key>        what a reading of some files gave: the fingerprint, and notes for the user
    FOLDER/.lock             held while an entry is written

A key is a hash of all that a reading depends on: every setting of section data, the files with their inodes, sizes and times
(`Source.signature` explains why this is safe), the vocabulary that is given, and the code that reads. So gigabytes need not be
read only to find that nothing has changed. A key that is missing costs a reading, and no encoding.
"""

import contextlib
import functools
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from chargpt.files import (
    FolderLock,
    SyncedFile,
    discard,
    publish_file,
    publishing,
    remove_left_behind,
    sync_folder,
    write_synced,
)
from chargpt.formatting import shown
from chargpt.screen import log
from chargpt.text.source import mapped_numbers
from chargpt.text.tokenizer import Tokenizer

if TYPE_CHECKING:  # of a list of items
    from chargpt.text.item_stream import ItemCounts, ItemMarks

T = TypeVar("T")
COPIED = 2**22  # ids of an entry that are written anew at a time
CHECKED = 2**26  # ids at the beginning and at the end of a split that are compared with the vocabulary: tens of milliseconds
FINGERPRINT = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class EncodedText:
    """The ids of a text, split into a training and a validation split."""

    fingerprint: str  # SHA-256 of the documents, the vocabulary and the split
    tokenizer: Tokenizer
    train: np.ndarray  # (n_train,) ids, uint8, uint16 or uint32, mapped from disk
    val: np.ndarray  # (n_val,) likewise; no overlap with train
    counts: np.ndarray  # (vocab_size,) int64: how often each id occurs in both splits
    distinct: int  # characters before any were folded
    items: "ItemCounts | None" = None  # of a list of items; None for any other text
    folder: Path | None = None  # of the entry; None for a text that is in no cache

    @property
    def is_validated(self) -> bool:
        """Whether there is text that the model does not learn from."""
        return len(self.val) > 1

    @property
    def evaluation_ids(self) -> np.ndarray:
        """The ids by which a model is judged: the validation split or, without one, the last tenth of the text."""
        return self.val if self.is_validated else self.train[-max(2, len(self.train) // 10) :]

    @property
    def marks(self) -> "ItemMarks | None":
        """The ids that divide a list into items; None for any other text."""
        return None if self.items is None else self.items.marks(self.tokenizer)

    @property
    def characters(self) -> int:
        """The number of ids in both splits: characters, or bytes if these are the vocabulary."""
        return len(self.train) + len(self.val)

    def kept(
        self, name: str, of: Sequence[object], measure: Callable[[], Any], read: Callable[[Any], T], *, by: str = "text"
    ) -> T:
        """What `measure` gives as JSON, as `read` reads it: from the file `name` of the entry if that is `of` the same, and the
        code of the package `by` is; * are all packages.

        What is missing, damaged (`read` raises TypeError or ValueError) or of another is measured, and stays in memory if it
        cannot be written. None, of a measurement that a signal ended, is returned, and neither kept nor read.
        """
        path, key = self.folder and self.folder / name, json.loads(json.dumps([hash_of_code(by), *of]))
        if path is not None:
            with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
                before, found = json.loads(path.read_text(encoding="utf-8"))
                if before == key:
                    return read(found)
        found = measure()
        if path is not None and found is not None:
            with contextlib.suppress(OSError):  # a cache that cannot be written to, or is gone
                publish_file(path, json.dumps([key, found]).encode())
        return found and read(found)


def hash_of(*parts: Any) -> str:
    """The SHA-256 of values that JSON can represent, in hexadecimal."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def fingerprint_of(read: Sequence[Any], tokenizer: Tokenizer) -> str:
    """The fingerprint of a text; `read` are the hash of its documents and its split."""
    digest, split = read
    return hash_of(digest, tokenizer.to_json(), split)


@functools.cache
def hash_of_code(package: str = "text") -> str:
    """The SHA-256 of all code of a package, with Python's version: whoever changes a reader reads anew."""
    files = sorted([*Path(__file__).parents[1].glob(f"{package}/*.py"), *Path(__file__).parents[1].glob("*.py")])
    return hash_of(sys.version, [hashlib.sha256(file.read_bytes()).hexdigest() for file in files])


class Cache:
    """A folder of encoded texts. Several processes may use it at once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._seen = folder, folder / "seen"

    def find(self, key: str) -> tuple[EncodedText, list[str]] | None:
        """The entry that was recorded for `key`, if it still exists, and the notes on its reading."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, ValueError, TypeError, KeyError):  # no such record
            seen = json.loads((self._seen / key).read_text(encoding="utf-8"))
            if encoded := self.open(seen["fingerprint"]):
                return encoded, [str(note) for note in seen["notes"]]
        return None

    def record(self, key: str, fingerprint: str, notes: Sequence[str]) -> None:
        """Make `find` return the entry `fingerprint` for `key` from now on. The caller must hold the lock."""
        publish_file(self._seen / key, json.dumps({"fingerprint": fingerprint, "notes": notes}).encode())

    def open(self, fingerprint: str) -> EncodedText | None:
        """The entry `fingerprint`; None if there is none or it is damaged."""
        if not FINGERPRINT.fullmatch(fingerprint):  # a checkpoint from elsewhere may name anything, for example a path
            return None
        folder = self.folder / fingerprint
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            meta = json.loads((folder / "entry.json").read_text())
            tokenizer = Tokenizer.from_json(meta["tokenizer"])
            ids = (tokenizer.dtype, tokenizer.vocab_size)
            if items := meta.get("items"):
                from chargpt.text.item_stream import ItemCounts  # of a list alone

                items = ItemCounts(**items)
            return EncodedText(
                fingerprint=fingerprint,
                tokenizer=tokenizer,
                train=_mapped(folder / "train.ids", meta["n_train"], *ids),
                val=_mapped(folder / "val.ids", meta["n_val"], *ids),
                counts=_mapped(folder / "counts.int64", tokenizer.vocab_size, np.dtype("<i8")),
                distinct=meta["distinct"],
                items=items,
                folder=folder,
            )
        return None

    def knowing(self, characters: str, text: EncodedText) -> EncodedText | None:
        """The entry of the same text with these characters in its vocabulary too, from that of `text`. None if it has to be
        read again: its vocabulary folds characters, an older program has encoded it, or the cache cannot be used."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError), self.locked():
            meta = json.loads((self.folder / text.fingerprint / "entry.json").read_text())
            tokenizer = text.tokenizer.knowing(characters)
            fingerprint = fingerprint_of(meta["read"], tokenizer)
            if found := self.open(fingerprint):
                return found
            ids = tokenizer.ids_of(text.tokenizer.characters or "").astype(tokenizer.dtype)
            counts = np.bincount(ids, text.counts, minlength=tokenizer.vocab_size)
            with self.publishing(fingerprint, counts=counts, meta=meta | {"tokenizer": tokenizer.to_json()}) as files:
                for file, split in zip(files, (text.train, text.val)):
                    file.writelines(ids[split[start : start + COPIED]].data for start in range(0, len(split), COPIED))
            return self.open(fingerprint)
        return None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing entries; wait until none does. A process that ends releases the lock."""
        self._seen.mkdir(parents=True, exist_ok=True)
        try:
            lock = FolderLock(self.folder, wait=False)
        except BlockingIOError:
            log(f"waiting until another run has prepared the text in {shown(self.folder)}")
            lock = FolderLock(self.folder, wait=True)
        with lock:
            for folder in (self.folder, self._seen):
                remove_left_behind(folder, FINGERPRINT)
            yield

    @contextlib.contextmanager
    def publishing(self, fingerprint: str, *, counts: np.ndarray, meta: dict[str, Any]) -> Iterator[Sequence[SyncedFile]]:
        """The files for the ids of a new entry: training, validation. The entry appears, complete and synced to disk, when the
        block ends without an error. The caller must hold the lock. Raises OSError."""
        discard(self.folder / fingerprint)  # `open` found it damaged
        with publishing(self.folder / fingerprint) as folder:
            folder.mkdir()
            with SyncedFile(folder / "train.ids") as train, SyncedFile(folder / "val.ids") as val:
                yield train, val
            write_synced(folder / "counts.int64", counts.astype("<i8").data.cast("B"))
            write_synced(folder / "entry.json", json.dumps(meta).encode())
            sync_folder(folder)


def _mapped(path: Path, length: int, dtype: np.dtype, limit: int = sys.maxsize) -> np.ndarray:
    """The `length` numbers in a file, mapped read-only. Raises ValueError for others, or one that is not below the `limit`."""
    if path.stat().st_size != length * dtype.itemsize:
        raise ValueError(f"{path}: not {length} numbers")
    numbers = mapped_numbers(path, dtype) if length else np.empty(0, dtype)
    if any(part.max(initial=0) >= limit for part in (numbers[:CHECKED], numbers[-CHECKED:])):
        raise ValueError(f"{path}: not all are in the vocabulary")
    return numbers
