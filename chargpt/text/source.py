"""The bytes of one source: a file (unpacked, if it is compressed), a copy of a pipe, or bytes in memory. To add a compression,
add the end of its names to OPENERS."""

import bz2
import codecs
import contextlib
import gzip
import hashlib
import importlib
import lzma
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from chargpt.errors import UserError, Words

MARKS = (  # UTF-32 before UTF-16, because the mark of UTF-16-LE is the beginning of that of UTF-32-LE
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (b"", "utf-8"),
)
MAX_RATIO = 200  # text that repeats little compresses to a tenth; zeros compress to a thousandth
BOMB_SIZE = 2**27  # bytes; a smaller text does no harm, whatever its ratio
SAMPLE = 8192  # bytes at the beginning of a file by which it is told from other files than text
RACY_NS = 2_000_000_000  # the coarsest clock of a file system in use (FAT)
# The corpora that have a name: corpora.py has their sources.
DEFAULT, PYTHON_SOURCE, SHAKESPEARE = NAMES = ("python-docs", "python-source", "shakespeare")


def _open_zst(file: BinaryIO) -> Any:
    for package in ("compression", "backports"):  # that of Python 3.14, and of earlier ones
        with contextlib.suppress(ImportError):
            return importlib.import_module(f"{package}.zstd").open(file, "rb")
    raise UserError(f"{file.name}: this Python cannot read .zst; unpack it (zstd -d), or pip install backports.zstd")


# How a file is opened whose name ends so. A .tgz, .txz or .tbz2 holds no text, which its content says better.
OPENERS: dict[str, Callable[[BinaryIO], Any]] = {
    **dict.fromkeys((".gz", ".tgz"), gzip.open),
    **dict.fromkeys((".xz", ".txz"), lzma.open),
    **dict.fromkeys((".bz2", ".tbz2"), bz2.open),
    ".zst": _open_zst,
}


def plain_name(path: Path) -> Path:
    """The name of a file without the suffix of its compression."""
    return Path(path.stem if path.suffix.lower() in OPENERS else path.name)


def byte_order_mark(head: bytes) -> tuple[bytes, str]:
    """The byte-order mark at the beginning of `head` and the encoding that it names; (b"", "utf-8") if there is none."""
    return next((mark, encoding) for mark, encoding in MARKS if head.startswith(mark))


def decoded(content: bytes, given: str) -> str:
    """The text of a file, or of its beginning: in the encoding that its mark names; in UTF-8, if it has more than ASCII and is
    UTF-8; or else in the first one that is `given`. What cannot be decoded is left out."""
    mark, encoding = byte_order_mark(content)
    if not mark and not content.isascii():
        with contextlib.suppress(UnicodeDecodeError):
            return codecs.getincrementaldecoder("utf-8")().decode(content)
    return content[len(mark) :].decode(encoding if mark else given.partition(",")[0], "ignore")


def mapped_numbers(file: Path | BinaryIO, dtype: np.dtype | type) -> np.ndarray:
    """The numbers in a file, which is not empty: mapped read-only, or read if its disk cannot map files. Raises OSError."""
    try:
        return np.memmap(file, dtype, mode="r")
    except OSError:
        if not isinstance(file, Path):
            file.seek(0)
        return np.fromfile(file, dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """A text that can be read several times. Compressed files are read decompressed."""

    label: str  # its name in messages
    path: Path | None = None
    content: bytes | memoryview = b""  # without a path: in memory, or a copy on the disk of a stream that can be read only once
    in_folder: bool = False  # found in a folder, not named by the user: skipped if it is binary

    @property
    def suffix(self) -> str:
        """The end of its name in small letters, without that of its compression."""
        return plain_name(self.path).suffix.lower() if self.path else ""

    def chunks(self, size: int) -> Iterator[bytes]:
        """The content in pieces of `size` bytes, up to the size that it has now. Raises UserError if it cannot be read."""
        if self.path is None:
            yield from (bytes(self.content[start : start + size]) for start in range(0, len(self.content), size))
            return
        opener, done = OPENERS.get(self.path.suffix.lower()), 0
        try:
            most = self.size or sys.maxsize  # files in /proc have a size of 0
            with open(self.path, "rb") as packed, opener(packed) if opener else contextlib.nullcontext(packed) as file:
                while chunk := file.read(min(size, most - done)):
                    done += len(chunk)
                    if opener and done > max(BOMB_SIZE, MAX_RATIO * packed.tell()):
                        raise UserError(f"{self.label}: unpacks to more than {MAX_RATIO} times its size; unpack it yourself")
                    yield chunk
        except UserError:
            raise
        except Exception as error:  # each decompressor has its own exceptions
            reason = getattr(error, "strerror", None) or f"damaged or cut off ({error})"
            raise UserError(f"{self.label}: {reason}; give a file that can be read") from None

    @property
    def size(self) -> int | None:
        """The number of bytes that `chunks` yields; None if it is known only after reading."""
        if self.path is None:
            return len(self.content)
        return None if self.path.suffix.lower() in OPENERS else self.path.stat().st_size

    def signature(self) -> list[Any] | None:
        """A value that changes whenever the content changes. None for a file that was changed just now: it may change again in
        the same tick of the clock (git calls such index entries racy). On POSIX, a change time cannot be set back."""
        if self.path is None:
            return [self.label, hashlib.sha256(self.content).hexdigest()]
        stat = self.path.stat()
        is_racy = time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) < RACY_NS
        times = [stat.st_mtime_ns, stat.st_ctime_ns]
        return None if is_racy else [str(self.path.absolute()), stat.st_ino, stat.st_size, *times]


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The sources of a run, in order. No file is in both splits."""

    train: list[Source]  # also split into training and validation split, if `val` is empty
    val: list[Source]
    notes: list[str]  # what the user should know about the selection
    left_out: list[Words] = field(default_factory=list)  # files of folders, with the way in

    @property
    def all(self) -> list[Source]:
        """Those of both splits."""
        return self.train + self.val

    @property
    def label(self) -> str:
        """Their name in an error message."""
        return self.train[0].label if len(self.train) == 1 else f"{len(self.train):,} files"

    @property
    def size(self) -> int | None:
        """The number of bytes to read; None if it is known only after reading."""
        sizes = [source.size for source in self.all]
        return None if None in sizes else sum(filter(None, sizes))

    def signature(self) -> list[Any] | None:
        """The signature of all sources together; None if one of them has none."""
        signatures = [source.signature() for source in self.all]
        return None if None in signatures else [len(self.train), signatures]


def files_below(folder: Path, skipped: Counter[str | Path], *, without: frozenset[str] = frozenset()) -> Iterator[Path]:
    """Every file below `folder`, but for links to folders and folders named in `without`. `skipped` counts what to tell."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.startswith((".", "~$")):  # the latter is a lock of Word
            skipped["hidden files and folders skipped"] += 1
        elif entry.is_dir(follow_symlinks=False):
            yield from files_below(Path(entry.path), skipped, without=without) if entry.name not in without else ()
        elif not os.path.exists(entry.path):  # a link whose target is missing, or which points to itself
            skipped["broken links skipped"] += 1
        elif entry.is_file():
            yield Path(entry.path)
