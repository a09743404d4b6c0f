"""Text to ids in two passes: the first counts the characters, the second writes the ids."""

import itertools
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from chargpt.config import DataConfig
from chargpt.errors import UserError
from chargpt.files import SyncedFile
from chargpt.formatting import plural
from chargpt.text.document import TRAIN, VAL
from chargpt.text.formats import field_in
from chargpt.text.growth import Growth
from chargpt.text.reading import TextReader
from chargpt.text.shuffle import shuffled_lines
from chargpt.text.source import mapped_numbers
from chargpt.text.tokenizer import CODE_POINTS, Tokenizer, code_points

if TYPE_CHECKING:  # of a list of items
    from chargpt.text.item_stream import ItemCounts

Part = tuple[int, int | None]  # the size of a part of a text, and the split that it is in; None: in no split
Encoded = Iterable[tuple[int, memoryview]]  # ids in pieces, each with its split
BLOCKS = 10  # of the validation split with data.split=blocks
# Characters on each side of a block that are in no split, so that it does not go on with what was learned; at most.
MARGIN, MARGIN_SHARE = 500, 0.1  # the second as a share of the block


@dataclass(frozen=True, kw_only=True)
class Split:
    """How a text is divided: with its documents and its vocabulary, all that its ids depend on."""

    stretches: tuple[Part, ...]
    order: Literal["none", "lines"] = "none"  # of its lines

    @classmethod
    def of(cls, growth: Growth) -> "Split":
        """That of a text that has grown."""
        parts = itertools.groupby(growth.stretches, lambda stretch: stretch.split)
        return cls(stretches=tuple((sum(one.size for one in some), split) for split, some in parts))

    def size(self, split: int | None) -> int:
        """How many characters are in this split."""
        return sum(size for size, number in self.stretches if number == split)


class Cutter:
    """Divides pieces as if they were one text with these stretches."""

    def __init__(self, stretches: Iterable[Part]) -> None:
        self._left = [*stretches][::-1]

    def cut(self, size: int) -> Iterator[Part]:
        """The parts of the next piece."""
        while size:
            left, split = self._left.pop()
            if left > size:
                self._left.append((left - size, split))
            if part := min(size, left):
                yield part, split
            size -= part


@dataclass(frozen=True, kw_only=True)
class TextCounts:
    """The result of the first pass."""

    config: DataConfig  # with which they were read
    counts: np.ndarray  # (CODE_POINTS,) int64: how often each code point (or byte) occurs in all sources
    split: Split  # of the text that is not for validation alone
    digest: str  # of the documents
    notes: list[str]
    # For a list of items: the text of each split, what is in it, and the characters that end items and labels.
    pieces: list[tuple[int, str]] | None = None
    items: "ItemCounts | None" = None
    marks: str = ""

    @property
    def read(self) -> tuple[str, dict[str, Any]]:
        """What a fingerprint depends on, beside the vocabulary: the documents and the split."""
        ends = itertools.accumulate(size for size, _ in self.split.stretches)
        stretches = [(end, split) for end, (_, split) in zip(ends, self.split.stretches)]
        return self.digest, {"stretches": stretches, "order": self.split.order}


def count_characters(reader: TextReader) -> TextCounts:
    """The first pass: count the characters of all sources."""
    counts, size = np.zeros(CODE_POINTS, np.int64), 0
    for part, piece in reader:
        found = np.bincount(code_points(piece))
        counts[: len(found)] += found
        size += len(piece) * (part == TRAIN)
    split, notes = split_of(size, reader.config), notes_of(reader)
    if left_out := split.size(None):
        notes.append(f"{BLOCKS} blocks of the text are for validation; {left_out:,} characters next to these are not used")
    return TextCounts(config=reader.config, counts=counts, split=split, digest=reader.digest.hexdigest(), notes=notes)


def notes_of(reader: TextReader) -> list[str]:
    """What the user should know about how a text was read, when the reader is done."""
    read_as = [(how, files) for how, files in sorted(reader.read_as.items()) if how]
    notes = [f"{first}{f' and {len(more):,} more' * bool(more)}: read as {how}" for how, (first, *more) in read_as]
    if framed := [sum(part) for part in zip(*reader.framed)]:
        around = f"{framed[0]:,} characters ({framed[0] / framed[1]:.0%}) around the text"
        what_to_do = ", left out" if reader.config.frame == "drop" else "; data.frame=drop leaves them out"
        notes.append(f"{around} of {plural(len(reader.framed), 'file')}, such as a header or a licence{what_to_do}")
    for kind, count in reader.records.items():
        is_asked = reader.config.format == "fields"
        field = field_in(reader.config.field if is_asked or not kind.field else kind.field)
        read = f"the field {field!r} of {plural(count, 'record')} was read"
        notes.append(f"{kind.name}: {read if is_asked or not kind.note else f'{plural(count, kind.one)}, {kind.note}'}")
    notes += [f"{what}: {len(at):,}, the first in line {at[0]:,}" for what, at in reader.noted.items()]
    return notes + [f"{what} skipped: {count:,}" for what, count in reader.skipped.items()]


def split_of(characters: int, config: DataConfig) -> Split:
    """How a text of this many characters, without those for validation alone, is divided."""
    stretches: list[Part] = [(int(characters * (1 - config.val_fraction)), TRAIN), (characters, VAL)]
    if config.val_text or config.split == "document":
        stretches = [(characters, TRAIN)]
    elif config.split == "blocks":
        period = characters / BLOCKS
        size = int(period * config.val_fraction)
        margin, stretches = int(min(MARGIN, MARGIN_SHARE * size, (period - size) / 4)), []
        for start in (int((number + 0.5) * period - size / 2) for number in range(BLOCKS)):
            stretches += [(start - margin, TRAIN), (start, None), (start + size, VAL), (start + size + margin, None)]
        stretches.append((characters, TRAIN))
    ends = [0, *(end for end, _ in stretches)]
    sizes = ((end - start, part) for start, (end, part) in zip(ends, stretches) if end > start)
    return Split(stretches=tuple(sizes), order=config.shuffle)


def write_ids(
    pieces: Iterable[tuple[int, str]], tokenizer: Tokenizer, split: Split, *, files: Sequence[SyncedFile], folder: Path
) -> dict[str, int]:
    """The second pass: write the ids of each stretch to the file of its split, of two. With data.shuffle=lines, an unnamed file
    in `folder` holds the ids in their order. Returns the sizes of the splits. Raises UserError for lines of a text of one."""
    encoded, sizes = _encoded(pieces, tokenizer), [0, 0]
    divided = _in_stretches(encoded, split) if split.order == "none" else _in_other_order(encoded, split, tokenizer, folder)
    for part, ids in divided:
        files[part].write(ids)
        sizes[part] += len(ids)
    return {"n_train": sizes[TRAIN], "n_val": sizes[VAL]}


def _encoded(pieces: Iterable[tuple[int, str]], tokenizer: Tokenizer) -> Encoded:
    """The ids of each piece, all of whose characters must be known."""
    if tokenizer.characters is None:
        return ((part, memoryview(piece.encode("latin-1"))) for part, piece in pieces)
    table = tokenizer.table().clip(0).astype(tokenizer.dtype)
    return ((part, np.take(table, code_points(piece), mode="clip").data) for part, piece in pieces)


def _in_stretches(encoded: Encoded, split: Split) -> Encoded:
    """The split and the ids of each stretch, in pieces."""
    cutter = Cutter([*split.stretches, (sys.maxsize, TRAIN)])  # the last one is of a text that has grown since
    for part, ids in encoded:
        if part == VAL:
            yield VAL, ids
            continue
        for size, number in cutter.cut(len(ids)):
            now, ids = ids[:size], ids[size:]
            if number is not None:
                yield number, now


def _in_other_order(encoded: Encoded, split: Split, tokenizer: Tokenizer, folder: Path) -> Encoded:
    """The split and the ids of each line. The training split is about as large as it was, for it ends with a line."""
    newline, left = int(tokenizer.ids_of("\n")[0]), split.size(TRAIN)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.writelines(piece for _, piece in encoded)
        file.flush()
        ids = mapped_numbers(file, tokenizer.dtype)
        if newline < 0 or newline in tokenizer.never_sampled or newline not in ids[:-1]:
            raise UserError("data.shuffle: lines given, but the text is one line; leave it out")
        for line in shuffled_lines(ids, newline):
            yield TRAIN if left > 0 else VAL, line.data
            left -= len(line)
        del ids
