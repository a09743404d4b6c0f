"""File formats: how compressed files are opened, and how files that are not text are recognised."""

import bz2
import contextlib
import gzip
import lzma
import zlib
from pathlib import Path
from typing import IO, BinaryIO

from chargpt.errors import UserError, shell_word
from chargpt.project import command
from chargpt.terminal import shown

# How to get the text of a document. {file} is its name and {text} that of the text.
OFFICE = "in Word or LibreOffice, save it as plain text (UTF-8), or: pandoc {file} -t plain --wrap=none -o {text}"
DOCUMENTS = {  # by the end of the name
    ".pdf": "a PDF, not text; extract its text: pdftotext {file} {text}",
    ".docx": f"a Word document, not text; {OFFICE}",
    ".odt": f"an OpenDocument text, not plain text; {OFFICE}",
    ".rtf": f"rich text, not plain text; {OFFICE}",
    ".epub": "an e-book, not text; extract its text: pandoc {file} -t plain --wrap=none -o {text}",
    ".doc": "an old Office document, not text; in Word or LibreOffice, save it as plain text (UTF-8)",
}
# How a file begins: what it is, and what to do about it.
MAGIC = {
    b"%PDF-": DOCUMENTS[".pdf"],
    b"PK\x03\x04": "a zip archive (as .docx, .odt and .epub are), not text; unpack it, or save it as plain text",
    b"{\\rtf": DOCUMENTS[".rtf"],
    b"\xd0\xcf\x11\xe0": DOCUMENTS[".doc"],
    b"\x1f\x8b": "compressed with gzip; give it a name that ends in .gz",
    b"\xfd7zXZ": "compressed with xz; give it a name that ends in .xz",
    b"BZh": "compressed with bzip2; give it a name that ends in .bz2",
    b"7z\xbc\xaf": "a 7z archive, not text; unpack it",
    b"SQLite format 3\0": "a database, not text; export its text first",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; give it a name that ends in .zst",
    b"\x89PNG": "a picture, not text; give a text file",
    b"\xff\xd8\xff": "a picture, not text; give a text file",
    b"\x7fELF": "a program, not text; give a text file",
}
ZIP_CONTENTS = {  # what the beginning of a zip archive contains if it is a document: the end of such a name
    b"mimetypeapplication/epub+zip": ".epub",
    b"mimetypeapplication/vnd.oasis.opendocument.text": ".odt",
    b"word/": ".docx",
}
TAR_OFFSET = 257  # of the mark in the header of a tar archive
CHECKPOINT = "ckpt.pt"  # in the folder that nanoGPT's train.py writes

COMPRESSED = (".gz", ".xz", ".bz2", ".zst")  # how the name of a file ends that is read decompressed


def refuse_checkpoint(path: Path) -> None:
    """Raise UserError, which says how to make a run of it, if `path` is a checkpoint of nanoGPT or its folder."""
    folder = path.parent if path.name == CHECKPOINT else path
    if (folder / CHECKPOINT).is_file():
        words = f"{command('import')} {shell_word(shown(folder))} --run NAME"
        raise UserError(f"{shown(path)}: a checkpoint of nanoGPT; make a run of it with {words}")


def is_compressed(path: Path) -> bool:
    """Whether the name of a file says that it is compressed."""
    return path.suffix.lower() in COMPRESSED


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


def plain_name(path: Path) -> Path:
    """The name of a file without the suffix of its compression."""
    return Path(path.stem if is_compressed(path) else path.name)


def binary_format(head: bytes, *, path: Path | None = None) -> str | None:
    """What a file that begins with `head` is, and what to do about it; None if it may be text. `path` is for a command."""
    what = _binary_format(head, "" if path is None else path.suffix.lower())
    return what and what.format(file=shell_word(str(path or "FILE")), text=shell_word((path or Path("FILE")).stem + ".txt"))


def _binary_format(head: bytes, suffix: str) -> str | None:
    if any(part[TAR_OFFSET:].startswith(b"ustar") for part in (head, _unpacked(head))):
        return "a tar archive, not text; unpack it and give the folder"
    if head.startswith(b"PK\x03\x04"):
        contained = next((kind for content, kind in ZIP_CONTENTS.items() if content in head), suffix)
        suffix = suffix if suffix in ZIP_CONTENTS.values() else contained
        if suffix in ZIP_CONTENTS.values():
            return DOCUMENTS[suffix]
    return next((what for magic, what in MAGIC.items() if head.startswith(magic)), None)


def _unpacked(head: bytes) -> bytes:
    """The first block of what is compressed in a file that begins with `head`; empty if it cannot be told."""
    for decompressor in (zlib.decompressobj(wbits=31), lzma.LZMADecompressor(), bz2.BZ2Decompressor()):
        with contextlib.suppress(zlib.error, lzma.LZMAError, OSError):
            return decompressor.decompress(head, 512)
    return b""


def is_binary(head: bytes) -> bool:
    """Whether a file that begins with `head` is not text: a known format, or a NUL byte without a byte-order mark."""
    return binary_format(head) is not None or (b"\0" in head[:8192] and head[:2] not in (b"\xff\xfe", b"\xfe\xff"))
