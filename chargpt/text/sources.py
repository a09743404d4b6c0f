"""Where texts come from: files, folders, standard input and named corpora, compressed or not."""

import bz2
import difflib
import fnmatch
import gzip
import hashlib
import io
import lzma
import os
import shutil
import sys
import sysconfig
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from chargpt.terminal import UserError, shown

DEFAULT = "python-docs"
NAMED = (DEFAULT, "python-source", "shakespeare")
SHAKESPEARE_URL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
SHAKESPEARE_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
NOT_ITS_SOURCE = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test"})  # below the standard library
RACY_NS = 2_000_000_000  # the coarsest clock of a file system in use (FAT)


def _open_zst(path: Path, mode: str) -> BinaryIO:
    try:
        from compression import zstd  # Python 3.14
    except ImportError:
        try:
            from backports import zstd
        except ImportError:
            what_to_do = "unpack it (zstd -d), or pip install backports.zstd"
            raise UserError(f"{shown(path)}: this Python reads no .zst; {what_to_do}") from None
    return zstd.open(path, mode)


OPENERS = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open, ".zst": _open_zst}


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """A file of text, or text in memory. It can be read as often as one likes, and reads decompressed."""

    label: str
    path: Path | None = None
    content: bytes = b""
    spool: BinaryIO | None = None  # a copy of what could be read only once
    in_folder: bool = False  # found, not named by the user, who then cannot be asked to take a binary file out

    def open(self) -> BinaryIO:
        """A buffered reader from the beginning."""
        if self.spool is not None:
            self.spool.seek(0)
            return open(os.dup(self.spool.fileno()), "rb")
        if self.path is None:
            return io.BytesIO(self.content)
        return OPENERS.get(self.path.suffix.lower(), open)(self.path, "rb")

    def chunks(self, size: int) -> Iterator[bytes]:
        """The content in pieces of `size` bytes. Raises UserError if it cannot be read."""
        try:
            with self.open() as file:
                while chunk := file.read(size):
                    yield chunk
        except UserError:
            raise
        except Exception as error:  # every kind of compression has errors of its own
            reason = getattr(error, "strerror", None) or f"damaged or cut off ({error})"
            raise UserError(f"{self.label}: {reason}; give a file that can be read") from None

    @property
    def json_lines(self) -> bool:
        """Whether each line is a JSON object, going by the name."""
        return self.path is not None and _plain_name(self.path).suffix.lower() in (".jsonl", ".ndjson")

    @property
    def size(self) -> int | None:
        """How many bytes `chunks` will give; None where only reading tells."""
        if self.path is None:
            return os.fstat(self.spool.fileno()).st_size if self.spool else len(self.content)
        return None if self.path.suffix.lower() in OPENERS else self.path.stat().st_size

    def signature(self) -> list[Any] | None:
        """What cannot stay the same when the content changes, or None where nothing is like that.

        Nobody can set back a file's change time; but one that changed just now could change again within the same tick of
        the clock, without a trace (git calls such index entries racy).
        """
        if self.path is None:
            return None if self.spool else [self.label, hashlib.sha256(self.content).hexdigest()]
        stat = self.path.stat()
        if time.time_ns() - max(stat.st_mtime_ns, stat.st_ctime_ns) < RACY_NS:
            return None
        return [str(self.path.absolute()), stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The texts of a run, in order; none is in both parts."""

    name: str  # what a run on them is called unless told otherwise
    train: list[Source]  # and to validate, unless there is
    val: list[Source]  # a text given for that
    notes: list[str]  # what the user should know about how they were found

    @property
    def label(self) -> str:
        """What to call them in an error message."""
        return self.train[0].label if len(self.train) == 1 else f"{len(self.train):,} files"

    @property
    def size(self) -> int | None:
        """Bytes to read; None where only reading tells."""
        sizes = [source.size for source in self.train + self.val]
        return None if None in sizes else sum(sizes)

    def signature(self) -> list[Any] | None:
        """As that of a source, for all of them."""
        signatures = [source.signature() for source in self.train + self.val]
        return None if None in signatures else [len(self.train), signatures]

    def close(self) -> None:
        """Give back the disk space of what could be read only once."""
        for source in self.train + self.val:
            if source.spool is not None:
                source.spool.close()


def find(texts: Sequence[str], *, val_text: str, pattern: str, root: Path, spool_folder: Path) -> Inputs:
    """What `texts` and `val_text` name: files, folders (their files that match `pattern`), `-`, named corpora.

    What can be read only once (standard input, a pipe) is copied to an unnamed file in `spool_folder` first. Raises UserError.
    """
    texts, hidden = list(texts) or [DEFAULT], []
    train = [source for text in texts for source in _sources(text, pattern, root, spool_folder, hidden)]
    val = _sources(val_text, pattern, root, spool_folder, hidden) if val_text else []
    held_out = {source.path.resolve() for source in val if source.path}
    rest = [source for source in train if not (source.path and source.path.resolve() in held_out)]
    if not rest:
        raise UserError(f"data.val_text: {val_text} is the training text as well; give another, or use data.val_fraction")
    notes = [f"{len(rest) + len(val):,} files"] if len(rest) + len(val) > 1 else []
    if len(rest) < len(train):
        notes.append(f"left out of the training text, since they are in the validation text: {len(train) - len(rest):,} files")
    if hidden:
        notes.append(f"hidden files and folders passed over: {len(hidden):,}")
    return Inputs(name=_name(texts[0]), train=rest, val=val, notes=notes)


def _sources(text: str, pattern: str, root: Path, spool_folder: Path, hidden: list[Path]) -> list[Source]:
    """What one TEXT names. Appends what it passes over to `hidden`."""
    path = Path(text)
    if text == "-":
        return [_spooled("standard input", sys.stdin.buffer, spool_folder)]
    if path.is_dir():
        return _folder(path, pattern, hidden)
    if path.is_file():
        return [Source(label=shown(path), path=path)]
    if path.exists():
        with open(path, "rb") as pipe:
            return [_spooled(shown(path), pipe, spool_folder)]
    if text in NAMED:
        return _named(text, root)
    raise UserError(f"{text}: no such file or folder; {_suggestion(path)}")


def is_binary(head: bytes) -> bool:
    """Whether a file that begins like this holds no text: a known format, or a NUL byte without a byte-order mark."""
    return binary_format(head) is not None or (b"\0" in head[:8192] and head[:2] not in (b"\xff\xfe", b"\xfe\xff"))


def binary_format(head: bytes) -> str | None:
    """What a file that begins like this is, and what to do about it; None when it may be text."""
    formats = {
        b"%PDF-": "a PDF, not text; take its text out first, for example with pdftotext",
        b"PK\x03\x04": "a zip archive (as .docx, .odt and .epub are), not text; unpack it or save it as plain text",
        b"{\\rtf": "rich text; save it as plain text",
        b"\xd0\xcf\x11\xe0": "an old Office document, not text; save it as plain text",
        b"\x1f\x8b": "compressed with gzip; give it a name that ends in .gz",
        b"\xfd7zXZ": "compressed with xz; give it a name that ends in .xz",
        b"\x28\xb5\x2f\xfd": "compressed with zstd; give it a name that ends in .zst",
        b"\x89PNG": "a picture, not text; give a text file",
        b"\xff\xd8\xff": "a picture, not text; give a text file",
        b"\x7fELF": "a program, not text; give a text file",
    }
    return next((what for magic, what in formats.items() if head.startswith(magic)), None)


def _name(text: str) -> str:
    """What a run on `text` is called: the name without its suffixes."""
    path = Path(text)
    return "stdin" if text == "-" else path.resolve().name or "text" if path.is_dir() else _plain_name(path).stem


def _plain_name(path: Path) -> Path:
    """The name without the suffix that tells how it is compressed."""
    return Path(path.stem if path.suffix.lower() in OPENERS else path.name)


def _spooled(label: str, stream: BinaryIO, folder: Path) -> Source:
    if stream.isatty():
        print(f"reading {label}; end it with Ctrl-D", file=sys.stderr)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        spool = tempfile.TemporaryFile(dir=folder)  # it has no name, so that it vanishes with the process, however that ends
        shutil.copyfileobj(stream, spool, 2**20)
        spool.flush()
    except OSError as error:
        reason = f"{error.strerror} while copying it to {shown(folder)}"
        raise UserError(f"{label}: {reason}; make room there, or name another folder in data.cache") from None
    return Source(label=label, spool=spool)


def _folder(folder: Path, pattern: str, hidden: list[Path]) -> list[Source]:
    """The files anywhere below `folder` that match `pattern`, sorted."""
    files = list(_walk(folder, hidden))
    matching = [path for path in files if fnmatch.fnmatch(_plain_name(path), pattern)]
    if not matching:
        raise UserError(f"{shown(folder)}: {_no_match(files, pattern)}")
    return [Source(label=shown(path), path=path, in_folder=True) for path in matching]


def _walk(folder: Path, hidden: list[Path], without: frozenset[str] = frozenset()) -> Iterator[Path]:
    """Every file below `folder` in a stable order, except in folders named in `without`. Follows no links to folders.

    Hidden files, and folders as a whole, go to `hidden` instead.
    """
    with os.scandir(folder) as entries:
        entries = sorted(entries, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.startswith("."):
            hidden.append(Path(entry.path))
        elif entry.is_dir(follow_symlinks=False):
            if entry.name not in without:
                yield from _walk(Path(entry.path), hidden, without)
        elif entry.is_file():
            yield Path(entry.path)


def _no_match(files: list[Path], pattern: str) -> str:
    if not files:
        return "an empty folder; give a folder with texts"
    suffix, count = Counter(_plain_name(path).suffix for path in files).most_common(1)[0]
    wanted = f"*{suffix}" if suffix else "*"
    return f"none of its {len(files):,} files matches {pattern}, {count:,} match {wanted}; add data.pattern='{wanted}'"


def _suggestion(path: Path) -> str:
    siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, [*NAMED, *siblings], n=1)
    if close:
        return f"did you mean {close[0] if close[0] in NAMED else path.parent / close[0]}?"
    return f"give a text file, a folder, - for standard input, or one of {', '.join(NAMED)}"


def _named(name: str, root: Path) -> list[Source]:
    if name == "python-docs":
        return [Source(label=name, content=_python_docs())]
    if name == "python-source":
        library = Path(sysconfig.get_path("stdlib"))
        files = _walk(library, [], NOT_ITS_SOURCE)
        return [Source(label=str(path), path=path, in_folder=True) for path in files if path.suffix == ".py"]
    return [_shakespeare(root / "data" / "shakespeare.txt")]


def _python_docs() -> bytes:
    try:
        from pydoc_data.topics import topics  # large, and some systems cut it out of Python
    except ImportError:
        raise UserError("python-docs: this Python comes without pydoc_data; give a text file") from None
    return "\n\n".join(topics.values()).encode()


def _shakespeare(path: Path) -> Source:
    """Andrej Karpathy's selection of 1.1 MB, fetched once and checked."""
    if not path.exists():
        try:
            with urllib.request.urlopen(SHAKESPEARE_URL, timeout=20) as answer:
                content = answer.read(2**24)
        except OSError as error:
            reason = f"{SHAKESPEARE_URL} cannot be read ({getattr(error, 'reason', error)})"
            raise UserError(f"shakespeare: {reason}; put that file at {shown(path)}") from None
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        aside.write_bytes(content)
        aside.replace(path)
    if hashlib.sha256(path.read_bytes()).hexdigest() != SHAKESPEARE_SHA256:
        raise UserError(f"{shown(path)}: not the Shakespeare text, by its SHA-256; delete it, and it is fetched again")
    return Source(label=shown(path), path=path)
