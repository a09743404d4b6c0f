"""Text to ids in two passes: the first counts the characters, the second writes the ids."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from chargpt.config import DataConfig
from chargpt.files import SyncedFile
from chargpt.terminal import UserError, plural
from chargpt.text.reading import TRAIN, Piece, TextReader
from chargpt.text.shuffle import shuffled_lines
from chargpt.text.tokenizer import CODE_POINTS, Tokenizer, code_points

PAIRS_WORTH_COUNTING = 2**16  # bytes in a piece


@dataclass(frozen=True, kw_only=True)
class TextCounts:
    """The result of the first pass."""

    counts: np.ndarray  # (CODE_POINTS,) int64: how often each code point (or byte) occurs in all sources
    n_train: int  # characters
    n_val: int
    digest: str  # of the content, as TextReader.digest
    notes: list[str]


def count_characters(reader: TextReader, config: DataConfig, *, stop_at_return: bool = False) -> TextCounts | None:
    """The first pass: count the characters of all sources. With `stop_at_return`, None as soon as there is a \\r."""
    counts = np.zeros(CODE_POINTS, np.int64)
    pairs = np.zeros(2**16, np.int64)
    sizes = [0, 0]
    for split, piece in reader:
        if stop_at_return and (b"\r" in piece if isinstance(piece, bytes) else "\r" in piece):
            return None
        points = np.frombuffer(piece, np.uint8) if isinstance(piece, bytes) else code_points(piece)
        sizes[split] += len(points)
        if points.dtype == np.uint8 and len(points) >= PAIRS_WORTH_COUNTING:
            # Counting pairs of bytes takes half as long as counting bytes.
            pairs += np.bincount(points[: len(points) // 2 * 2].view(np.uint16), minlength=2**16)
            points = points[len(points) // 2 * 2 :]
        found = np.bincount(points)
        counts[: len(found)] += found
    table = pairs.reshape(256, 256)
    counts[:256] += table.sum(axis=0) + table.sum(axis=1)
    n_train = sizes[TRAIN]
    if config.split == "position" and not config.val_text:
        n_train = int(n_train * (1 - config.val_fraction))
    notes = [f"{encoding}, as its byte-order mark says; the mark is removed" for encoding in sorted(reader.byte_order_marks)]
    for kind, count in reader.records.items():
        notes.append(f"{kind}: {config.field!r} of {plural(count, 'record')} is the text")
    if reader.empty_records:
        notes.append(f"records without text skipped: {reader.empty_records:,}")
    if reader.binary_files:
        notes.append(f"binary files skipped: {reader.binary_files:,}")
    return TextCounts(counts=counts, n_train=n_train, n_val=sum(sizes) - n_train, digest=reader.digest(), notes=notes)


def write_ids(reader: TextReader, tokenizer: Tokenizer, *, train: SyncedFile, val: SyncedFile, n_train: int) -> None:
    """The second pass: write the first `n_train` ids of the training split to `train`, all other ids to `val`."""
    encode = _encoder(tokenizer)
    written = 0
    for split, piece in reader:
        ids = encode(piece)
        size = min(len(ids), n_train - written) if split == TRAIN else 0
        train.write(ids[:size])
        val.write(ids[size:])
        written += size


def write_shuffled_ids(
    reader: TextReader, tokenizer: Tokenizer, *, train: SyncedFile, val: SyncedFile, n_train: int, folder: Path
) -> int:
    """The second pass with data.shuffle=lines: write the lines in another order. Returns the size of the training split.

    The training split has about `n_train` ids and ends with a line. An unnamed file in `folder` holds the ids in their order.
    Raises UserError for a text of one line.
    """
    encode, written = _encoder(tokenizer), 0
    newline = int(tokenizer.ids_of("\n")[0])
    with tempfile.TemporaryFile(dir=folder) as file:
        for _, piece in reader:
            file.write(encode(piece))
        file.flush()
        ids = np.memmap(file, tokenizer.dtype, mode="r")
        if newline < 0 or newline in tokenizer.never_sampled or newline not in ids[:-1]:
            raise UserError("data.shuffle: lines given, but the text is one line; leave it out")
        is_full = False
        for line in shuffled_lines(ids, newline):
            size = len(line)
            if is_full:
                size = 0
            elif written + size >= n_train:
                line_ends = np.flatnonzero(line == newline) + 1
                after = line_ends[line_ends >= n_train - written]
                is_full = len(after) > 0
                size = int(after[0]) if is_full else size
            train.write(line[:size].data)
            val.write(line[size:].data)
            written += size
        del ids
    return written


def _encoder(tokenizer: Tokenizer) -> Callable[[Piece], memoryview]:
    """A function that returns the ids of a piece. All of its characters must be known."""
    if tokenizer.characters is None:
        return _bytes_as_ids
    table = tokenizer.table().clip(0).astype(tokenizer.dtype)
    ascii_table = np.take(table, np.arange(256), mode="clip")
    translation = ascii_table.tobytes() if tokenizer.dtype == np.uint8 else None

    def encode(piece: Piece) -> memoryview:
        if isinstance(piece, str):
            return np.take(table, code_points(piece), mode="clip").data
        if translation is not None:
            return memoryview(piece.translate(translation))
        return ascii_table[np.frombuffer(piece, np.uint8)].data

    return encode


def _bytes_as_ids(piece: Piece) -> memoryview:
    """The ids of a piece of a text whose vocabulary is bytes."""
    assert isinstance(piece, bytes), type(piece)
    return memoryview(piece)
