"""Text to ids in two passes: the first counts the characters, the second writes the ids."""

import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from chargpt.config import DataConfig
from chargpt.errors import UserError
from chargpt.files import SyncedFile
from chargpt.terminal import plural
from chargpt.text.document import TRAIN, VAL
from chargpt.text.formats import field_in
from chargpt.text.items import ItemCounts
from chargpt.text.reading import TextReader
from chargpt.text.shuffle import shuffled_lines
from chargpt.text.tokenizer import CODE_POINTS, Tokenizer, code_points

BLOCKS = 10  # of the validation split with data.split=blocks
# Characters on each side of a block that are in no split, so that it does not go on with what was learned; at most.
MARGIN, MARGIN_SHARE = 500, 0.1  # the second as a share of the block


@dataclass(frozen=True, kw_only=True)
class Split:
    """How a text is divided: with its documents and its vocabulary, all that its ids depend on."""

    stretches: tuple[tuple[int, int | None], ...]  # where each ends, and the split that it is in; None: in no split
    order: Literal["none", "lines"] = "none"  # of its lines


@dataclass(frozen=True, kw_only=True)
class TextCounts:
    """The result of the first pass."""

    counts: np.ndarray  # (CODE_POINTS,) int64: how often each code point (or byte) occurs in all sources
    n_train: int  # characters
    n_val: int
    split: Split  # of the text that is not for validation alone
    digest: str  # of the documents
    notes: list[str]
    # For a list of items: the text of each split, what is in it, and the characters that end items and labels.
    pieces: list[tuple[int, str]] | None = None
    items: ItemCounts | None = None
    marks: str = ""


def count_characters(reader: TextReader) -> TextCounts:
    """The first pass: count the characters of all sources."""
    counts = np.zeros(CODE_POINTS, np.int64)
    sizes = [0, 0]
    for part, piece in reader:
        points = code_points(piece)
        sizes[part] += len(points)
        found = np.bincount(points)
        counts[: len(found)] += found
    split, parts, start = split_of(sizes[TRAIN], reader.config), [0, sizes[VAL]], 0
    for end, number in split.stretches:
        if number is not None:
            parts[number] += end - start
        start = end
    notes = notes_of(reader)
    if left_out := sum(sizes) - sum(parts):
        notes.append(f"{BLOCKS} blocks of the text are for validation; {left_out:,} characters next to these are not used")
    n_train, n_val = parts
    return TextCounts(counts=counts, n_train=n_train, n_val=n_val, split=split, digest=reader.digest(), notes=notes)


def notes_of(reader: TextReader) -> list[str]:
    """What the user should know about how a text was read, when the reader is done."""
    notes = [f"read as {encoding}, as its first bytes say (byte-order mark)" for encoding in sorted(reader.byte_order_marks)]
    for kind, count in reader.records.items():
        is_asked = reader.config.format == "fields"
        field = field_in(reader.config.field) if is_asked or not kind.field else kind.field
        read = f"the field {field!r} of {plural(count, 'record')} was read"
        notes.append(f"{kind.name}: {read if is_asked or not kind.note else f'{plural(count, kind.one)}, {kind.note}'}")
    notes += [f"{what}, left out: {len(at):,}, the first in line {at[0]:,}" for what, at in reader.left_out.items()]
    return notes + [f"{what} skipped: {count:,}" for what, count in reader.skipped.items() if count]


def split_of(characters: int, config: DataConfig) -> Split:
    """How a text of this many characters, without those for validation alone, is divided."""
    if config.val_text or config.split == "document":
        return _split([(characters, TRAIN)])
    if config.split != "blocks":
        return _split([(int(characters * (1 - config.val_fraction)), TRAIN), (characters, VAL)], config.shuffle)
    period = characters / BLOCKS
    size = int(period * config.val_fraction)
    margin = int(min(MARGIN, MARGIN_SHARE * size, (period - size) / 4))
    stretches = list[tuple[int, int | None]]()
    for number in range(BLOCKS):
        start = int((number + 0.5) * period - size / 2)
        stretches += [(start - margin, TRAIN), (start, None), (start + size, VAL), (start + size + margin, None)]
    return _split([*stretches, (characters, TRAIN)])


def _split(stretches: list[tuple[int, int | None]], order: Literal["none", "lines"] = "none") -> Split:
    """A split of these stretches without empty ones."""
    ends = [0, *(end for end, _ in stretches)]
    return Split(stretches=tuple(one for one, before in zip(stretches, ends) if one[0] > before), order=order)


def write_ids(
    reader: Iterable[tuple[int, str]], tokenizer: Tokenizer, split: Split, *, train: SyncedFile, val: SyncedFile
) -> None:
    """The second pass: write the ids of each stretch to the file of its split; what only validates goes to `val`."""
    encode, files, rest = _encoder(tokenizer), {TRAIN: train, VAL: val}, (sys.maxsize, TRAIN)  # of a text that has grown since
    done, waiting = 0, iter(split.stretches)
    end, number = next(waiting, rest)
    for part, piece in reader:
        ids = encode(piece)
        if part == VAL:
            val.write(ids)
            continue
        while len(ids):
            now = ids[: end - done]
            if number is not None:
                files[number].write(now)
            ids, done = ids[len(now) :], done + len(now)
            if done == end:
                end, number = next(waiting, rest)


def write_shuffled_ids(
    reader: TextReader, tokenizer: Tokenizer, *, train: SyncedFile, val: SyncedFile, n_train: int, folder: Path
) -> dict[str, int]:
    """The second pass with data.shuffle=lines: write the lines in another order. Returns the sizes of the splits, n_train,
    about as it was, for it ends with a line, and n_val. An unnamed file in `folder` holds the ids in their order. Raises
    UserError for a text of one line."""
    encode, written = _encoder(tokenizer), 0
    newline = int(tokenizer.ids_of("\n")[0])
    with tempfile.TemporaryFile(dir=folder) as file:
        for _, piece in reader:
            file.write(encode(piece))
        file.flush()
        ids = np.memmap(file, tokenizer.dtype, mode="r")
        if newline < 0 or newline in tokenizer.never_sampled or newline not in ids[:-1]:
            raise UserError("data.shuffle: lines given, but the text is one line; leave it out")
        for line in shuffled_lines(ids, newline):
            (train if written < n_train else val).write(line.data)
            written += len(line) * (written < n_train)
        sizes = {"n_train": written, "n_val": len(ids) - written}
        del ids
    return sizes


def _encoder(tokenizer: Tokenizer) -> Callable[[str], memoryview]:
    """A function that returns the ids of a piece. All of its characters must be known."""
    if tokenizer.characters is None:
        return lambda piece: memoryview(piece.encode("latin-1"))
    table = tokenizer.table().clip(0).astype(tokenizer.dtype)
    return lambda piece: np.take(table, code_points(piece), mode="clip").data
