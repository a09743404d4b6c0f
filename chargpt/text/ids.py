"""Text to ids in two passes: the first counts the characters, the second writes the ids."""

import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from chargpt.config import DataConfig
from chargpt.errors import UserError
from chargpt.files import SyncedFile
from chargpt.terminal import plural
from chargpt.text.formats import CHATS
from chargpt.text.items import ItemCounts
from chargpt.text.reading import TRAIN, VAL, TextReader
from chargpt.text.shuffle import shuffled_lines
from chargpt.text.tokenizer import CODE_POINTS, Tokenizer, code_points

BLOCKS = 10  # of the validation split with data.split=blocks
# Characters on each side of a block that are in no split, so that it does not go on with what was learned; at most.
MARGIN, MARGIN_SHARE = 500, 0.1  # the second as a share of the block

Stretches = list[tuple[int, int | None]]  # where stretches of a text end, and the split that each is in; None: in no split


@dataclass(frozen=True, kw_only=True)
class TextCounts:
    """The result of the first pass."""

    counts: np.ndarray  # (CODE_POINTS,) int64: how often each code point (or byte) occurs in all sources
    n_train: int  # characters
    n_val: int
    stretches: Stretches  # of the text that is not for validation alone
    digest: str  # of the content, as TextReader.digest
    notes: list[str]
    # For a list of items: the text of each split, what is in it, and the characters that end items and labels.
    pieces: list[tuple[int, str]] | None = None
    items: ItemCounts | None = None
    marks: str = ""


def count_characters(reader: TextReader, config: DataConfig) -> TextCounts:
    """The first pass: count the characters of all sources."""
    counts = np.zeros(CODE_POINTS, np.int64)
    sizes = [0, 0]
    for split, piece in reader:
        points = code_points(piece)
        sizes[split] += len(points)
        found = np.bincount(points)
        counts[: len(found)] += found
    stretches, parts = stretches_of(sizes[TRAIN], config), [0, sizes[VAL]]
    ends = [min(end, sizes[TRAIN]) for end, _ in stretches]
    for start, end, (_, part) in zip([0, *ends], ends, stretches):
        if part is not None:
            parts[part] += end - start
    n_train, n_val = parts
    notes = notes_of(reader, config)
    if left_out := sum(sizes) - n_train - n_val:
        notes.append(f"{BLOCKS} blocks of the text are for validation; {left_out:,} characters next to these are not used")
    return TextCounts(counts=counts, n_train=n_train, n_val=n_val, stretches=stretches, digest=reader.digest(), notes=notes)


def notes_of(reader: TextReader, config: DataConfig) -> list[str]:
    """What the user should know about how a text was read, when the reader is done."""
    notes = [f"read as {encoding}, as its first bytes say (byte-order mark)" for encoding in sorted(reader.byte_order_marks)]
    for kind, count in reader.records.items():
        as_it_is = "each a line `Name: message`; data.format=text reads the file as it is"
        record = f"the field {config.field!r} of {plural(count, 'record')} was read"
        is_chat = kind in CHATS and config.format != "fields"
        notes.append(f"{kind}: {plural(count, 'message')}, {as_it_is}" if is_chat else f"{kind}: {record}")
    notes += [f"{what}, left out: {len(at):,}, the first in line {at[0]:,}" for what, at in reader.left_out.items()]
    return notes + [f"{what} skipped: {count:,}" for what, count in reader.skipped.items() if count]


def stretches_of(characters: int, config: DataConfig) -> Stretches:
    """How a text of this many characters, without those for validation alone, is divided. The last stretch has no end."""
    if config.val_text or config.split == "document":
        return [(sys.maxsize, TRAIN)]
    if config.split != "blocks":
        return [(int(characters * (1 - config.val_fraction)), TRAIN), (sys.maxsize, VAL)]
    period = characters / BLOCKS
    size = int(period * config.val_fraction)
    margin = int(min(MARGIN, MARGIN_SHARE * size, (period - size) / 4))
    stretches: Stretches = []
    for number in range(BLOCKS):
        start = int((number + 0.5) * period - size / 2)
        stretches += [(start - margin, TRAIN), (start, None), (start + size, VAL), (start + size + margin, None)]
    return [*stretches, (sys.maxsize, TRAIN)]


def write_ids(
    reader: Iterable[tuple[int, str]], tokenizer: Tokenizer, *, train: SyncedFile, val: SyncedFile, stretches: Stretches
) -> None:
    """The second pass: write the ids of each of the `stretches` to the file of its split; what only validates goes to `val`."""
    encode, files = _encoder(tokenizer), {TRAIN: train, VAL: val}
    done, waiting = 0, iter(stretches)
    end, split = next(waiting)
    for part, piece in reader:
        ids = encode(piece)
        if part == VAL:
            val.write(ids)
            continue
        while len(ids):
            now = ids[: end - done]
            if split is not None:
                files[split].write(now)
            ids, done = ids[len(now) :], done + len(now)
            if done == end:
                end, split = next(waiting)


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
