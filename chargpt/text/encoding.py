"""Texts to ids in two streaming passes: what characters there are, then their ids. Memory stays constant.

A piece of text is either bytes, where each byte is a character (ASCII, or the bytes vocabulary), or str: nearly all text is
ASCII nearly everywhere, and bytes go through at several times the speed.
"""

import codecs
import hashlib
import itertools
import json
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

import numpy as np

from chargpt.config import DataConfig
from chargpt.terminal import UserError
from chargpt.text.charsets import byte_order_mark, undecodable
from chargpt.text.sources import Inputs, Source, binary_format, is_binary
from chargpt.text.tokenizer import CODE_POINTS, Door, Tokenizer, code_points

CHUNK = 2**20
AHEAD = 4  # chunks
TRAIN, VAL = 0, 1

Item = TypeVar("Item")
Piece = bytes | str


class Reading:
    """One pass over all texts: iterate over it for (TRAIN or VAL, piece) pairs, once; the rest is known at the end."""

    def __init__(self, inputs: Inputs, config: DataConfig, *, progress: Any, hashed: bool = True) -> None:
        """`progress` has an update(bytes) method, called from another thread. Without `hashed` there is no digest."""
        self._sources = [(source, TRAIN) for source in inputs.train] + [(source, VAL) for source in inputs.val]
        self._config, self._progress = config, progress
        self._door = Door(newlines=config.newlines, normalize=config.normalize, lowercase=config.lowercase)
        self._utf8 = codecs.lookup(config.encoding).name == "utf-8"
        self._hash = hashlib.sha256() if hashed else None
        self.binaries = 0  # files of folders passed over, since they hold no text
        self.marked: set[str] = set()  # encodings that byte-order marks called for

    def __iter__(self) -> Iterator[tuple[int, Piece]]:
        return _gathered((part, self._narrow(piece)) for part, piece in self._pieces())

    def digest(self) -> str:
        """SHA-256 of everything that was read, and of how it was divided into texts."""
        return self._hash.hexdigest()

    def _narrow(self, piece: Piece) -> Piece:
        """`piece` as bytes, if a byte of it is a character (or stands for one in the vocabulary)."""
        if isinstance(piece, str) and (self._config.vocabulary == "bytes" or piece.isascii()):
            return piece.encode()
        return piece

    def _pieces(self) -> Iterator[tuple[int, Piece]]:
        separator = self._door.apply(self._config.unescaped_separator)
        sizes = [0, 0]
        for number, group in itertools.groupby(_ahead(self._chunks()), key=lambda item: item[0]):
            source, part = self._sources[number]
            for document in self._documents(source, (chunk for _, chunk in group)):
                if self._config.split == "document":
                    # Whenever validation holds less than its share, the next document is for it: evenly spread, with no
                    # need to know how many there are.
                    part = VAL if sizes[VAL] < self._config.val_fraction * sum(sizes) else TRAIN
                began = False
                for piece in filter(None, document):
                    if separator and sizes[part] and not began:
                        yield part, separator
                    began = True
                    sizes[part] += len(piece)
                    yield part, piece

    def _chunks(self) -> Iterator[tuple[int, bytes]]:
        """The number of a source and a piece of it, an empty one at its end. Runs in another thread: hashing takes no time."""
        for number, (source, part) in enumerate(self._sources):
            size = 0
            for chunk in source.chunks(CHUNK):
                if size == 0 and source.in_folder and is_binary(chunk):
                    self.binaries += 1
                    break
                size += len(chunk)
                if self._hash:
                    self._hash.update(chunk)
                self._progress.update(len(chunk))
                yield number, chunk
            else:
                if self._hash:
                    self._hash.update(f"{size} {part} {source.json_lines}\n".encode())
                yield number, b""

    def _documents(self, source: Source, chunks: Iterator[bytes]) -> Iterator[Iterable[Piece]]:
        """The documents of a source, each in pieces: one, or one for each JSON line."""
        # Where nothing has to be decoded, a bytes vocabulary takes any file as it is.
        raw = self._config.vocabulary == "bytes" and self._utf8 and self._door.open and not source.json_lines
        pieces = chunks if raw else self._decoded(source, chunks)
        documents = _json_documents(source, pieces, self._config.field) if source.json_lines else [pieces]
        for document in documents:
            yield document if self._door.open else self._through_door(document)

    def _decoded(self, source: Source, chunks: Iterator[bytes]) -> Iterator[Piece]:
        first = next(chunks)
        encoding, mark = self._config.encoding, b""
        if self._utf8:
            mark, encoding = byte_order_mark(first)
            if mark:
                self.marked.add(encoding)
            elif (what := binary_format(first)) is not None:
                raise UserError(f"{source.label}: {what}")
        decoder = codecs.getincrementaldecoder(encoding)()
        offset = len(mark)
        for chunk in itertools.chain([first[len(mark) :]], chunks):
            pending = len(decoder.getstate()[0])
            if encoding == "utf-8" and not pending and chunk.isascii():
                yield chunk
            else:
                try:
                    yield decoder.decode(chunk, final=not chunk)
                except UnicodeError as error:  # without a place: utf-16 that does not begin with its mark
                    raise undecodable(source, offset - pending + getattr(error, "start", 0), encoding) from None
            offset += len(chunk)

    def _through_door(self, pieces: Iterable[Piece]) -> Iterator[str]:
        rest = ""
        for piece in pieces:
            text = rest + (piece if isinstance(piece, str) else piece.decode())
            cut = self._door.safe_cut(text)
            yield self._door.apply(text[:cut])
            rest = text[cut:]
        yield self._door.apply(rest)


def _ahead(items: Iterator[Item]) -> Iterator[Item]:
    """`items`, the next few of which are being made in a thread while one is used."""
    with ThreadPoolExecutor(1) as pool:
        coming = deque(pool.submit(next, items, None) for _ in range(AHEAD))
        while (item := coming.popleft().result()) is not None:
            coming.append(pool.submit(next, items, None))
            yield item


def _gathered(pieces: Iterable[tuple[int, Piece]]) -> Iterator[tuple[int, Piece]]:
    """The same text with small pieces joined: one of many short documents would spend its time between them."""
    held: list[Piece] = []
    held_part, size = TRAIN, 0
    for part, piece in pieces:
        if held and (part != held_part or type(piece) is not type(held[0]) or size > CHUNK // 8):
            yield held_part, held[0][:0].join(held)
            held, size = [], 0
        held.append(piece)
        held_part, size = part, size + len(piece)
    if held:
        yield held_part, held[0][:0].join(held)


def _json_documents(source: Source, pieces: Iterable[Piece], field: str) -> Iterator[list[str]]:
    """The text in `field` of each line, as a document of one piece."""
    number = 0
    for line in _lines(pieces):
        number += 1
        if not line or line.isspace():
            continue
        where = f"{source.label}: line {number:,}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: not JSON ({error}); give a JSON object a line, or a name that ends in .txt") from None
        if not isinstance(record, dict):
            raise UserError(f"{where}: holds no JSON object; give an object with the text in a field a line")
        if field not in record:
            fields = ", ".join(map(str, record)) or "none"
            raise UserError(f"{where}: no field {field!r}, its fields are: {fields}; name the one with the text in data.field")
        text = record[field]
        if not isinstance(text, str):
            raise UserError(f"{where}: field {field!r} holds a {type(text).__name__}; name one with text in data.field")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UserError(f"{where}: half a surrogate pair at character {error.start:,} of {field!r}; mend it") from None
        yield [text]


def _lines(pieces: Iterable[Piece]) -> Iterator[str]:
    """The lines of a text that comes in pieces, without their ends; only \\n ends a line, as JSON lines has it."""
    rest: list[str] = []
    for piece in pieces:
        first, *others = (piece if isinstance(piece, str) else piece.decode()).split("\n")
        rest.append(first)
        for other in others:
            yield "".join(rest)
            rest = [other]
    yield "".join(rest)


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What the first pass finds."""

    counts: np.ndarray  # how often each code point (or byte) stands in all texts, (CODE_POINTS,) int64
    n_train: int
    n_val: int
    digest: str
    notes: list[str]


def survey(reading: Reading, config: DataConfig) -> Survey:
    """The first pass: count the characters of all texts."""
    counts = np.zeros(CODE_POINTS, np.int64)
    pairs = np.zeros(2**16, np.int64)
    sizes = [0, 0]
    for part, piece in reading:
        points = np.frombuffer(piece, np.uint8) if isinstance(piece, bytes) else code_points(piece)
        sizes[part] += len(points)
        if points.dtype == np.uint8 and len(points) >= 2**16:
            # Counting pairs of bytes takes half the time of counting bytes; they are taken apart at the end.
            pairs += np.bincount(points[: len(points) // 2 * 2].view(np.uint16), minlength=2**16)
            points = points[len(points) // 2 * 2 :]
        found = np.bincount(points)
        counts[: len(found)] += found
    table = pairs.reshape(256, 256)
    counts[:256] += table.sum(axis=0) + table.sum(axis=1)
    n_train = sizes[TRAIN]
    if config.split == "position" and not config.val_text:
        n_train = int(n_train * (1 - config.val_fraction))
    notes = [f"{encoding} by the byte-order mark, which is left out" for encoding in sorted(reading.marked)]
    if reading.binaries:
        notes.append(f"binary files passed over: {reading.binaries:,}")
    return Survey(counts=counts, n_train=n_train, n_val=sum(sizes) - n_train, digest=reading.digest(), notes=notes)


def write_ids(reading: Reading, tokenizer: Tokenizer, *, train: BinaryIO, val: BinaryIO, n_train: int) -> None:
    """The second pass: the first `n_train` ids for training go to the file `train`, all others to `val`."""
    encode = _encoder(tokenizer)
    written = 0
    for part, piece in reading:
        ids = encode(piece)
        room = min(len(ids), n_train - written) if part == TRAIN else 0
        train.write(ids[:room])
        val.write(ids[room:])
        written += room


def _encoder(tokenizer: Tokenizer) -> Any:
    """A function from a piece, all of whose characters are known, to a memoryview of its ids."""
    if tokenizer.characters is None:
        return memoryview
    table = tokenizer.table().clip(0).astype(tokenizer.dtype)
    ascii_table = np.take(table, np.arange(256), mode="clip")
    translation = ascii_table.tobytes() if tokenizer.dtype == np.uint8 else None

    def encode(piece: Piece) -> memoryview:
        if isinstance(piece, str):
            return memoryview(np.take(table, code_points(piece), mode="clip"))
        if translation is not None:
            return memoryview(piece.translate(translation))
        return memoryview(ascii_table[np.frombuffer(piece, np.uint8)])

    return encode
