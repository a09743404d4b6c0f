"""How compressed files are opened."""

import bz2
import contextlib
import gzip
import lzma
import zlib
from pathlib import Path
from typing import IO, BinaryIO

from chargpt.errors import UserError

COMPRESSED = (".gz", ".xz", ".bz2", ".zst")  # how the name of a file ends that is read decompressed


def is_compressed(path: Path) -> bool:
    """Whether the name of a file says that it is compressed."""
    return path.suffix.lower() in COMPRESSED


def plain_name(path: Path) -> Path:
    """The name of a file without the suffix of its compression."""
    return Path(path.stem if is_compressed(path) else path.name)


def open_unpacked(path: Path, *, packed: BinaryIO | None = None) -> IO[bytes] | gzip.GzipFile:
    """A reader of the content of a file. `packed` is the same file, already open: its position tells how much was read.

    Raises OSError, and UserError where this Python has no decompressor for it.
    """
    suffix, file = path.suffix.lower(), packed or path
    if suffix == ".gz":
        return gzip.open(file, "rb")
    if suffix == ".xz":
        return lzma.open(file, "rb")
    if suffix == ".bz2":
        return bz2.open(file, "rb")
    return _open_zst(file, path.name) if suffix == ".zst" else open(path, "rb")


def _open_zst(file: Path | BinaryIO, name: str) -> IO[bytes]:
    try:
        from compression import zstd  # Python 3.14
    except ImportError:
        try:
            from backports import zstd
        except ImportError:
            what_to_do = "unpack it (zstd -d), or pip install backports.zstd"
            raise UserError(f"{name}: this Python cannot read .zst; {what_to_do}") from None
    return zstd.open(file, "rb")


def first_block(head: bytes) -> bytes:
    """The first block of what is compressed in a file that begins with `head`; empty if it cannot be told."""
    for decompressor in (zlib.decompressobj(wbits=31), lzma.LZMADecompressor(), bz2.BZ2Decompressor()):
        with contextlib.suppress(zlib.error, lzma.LZMAError, OSError):
            return decompressor.decompress(head, 512)
    return b""
