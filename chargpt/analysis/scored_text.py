"""A text with the surprise of each character: streamed through a model, put together as lines, and summed up in a table."""

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from chargpt.model import GPT
from chargpt.sampling.surprisal import predictions_of
from chargpt.terminal import one_line
from chargpt.text.tokenizer import Tokenizer, character_name, code_points, utf8_lengths

# The price of an unknown character: a choice among all code points of Unicode.
UNKNOWN_BITS = float(np.log2(0x110000))
# Unknown characters that are named.
MOST_UNKNOWN = 8
# Characters of a line; a longer one is cut, so that memory stays bounded.
LONGEST = 2**16
# Columns of the first column of the table.
LABEL = 24
HEAD = f"{'':<{LABEL}}{'characters':>12}{'bytes':>12}{'size':>12}{'bits/char':>11}{'bits/byte':>11}{'loss':>9}"

Piece = str | bytes


@dataclass(frozen=True)
class Line:
    """A line of a text, or a part of a very long one."""

    number: int  # from 1
    text: str  # with its newline
    bits: np.ndarray  # the surprise of each character, (len(text),); nan for the first one of a text, which is not predicted

    @property
    def total(self) -> float:
        """The bits of the line."""
        return float(np.nansum(self.bits))

    @property
    def mean(self) -> float:
        """Bits per predicted character; nan if there is none."""
        predicted = np.count_nonzero(~np.isnan(self.bits))
        return self.total / predicted if predicted else float("nan")


@dataclass
class Total:
    """What a model needs for one text or for several. The first character of a text is not predicted, and not counted."""

    characters: int = 0
    bytes: int = 0  # of the characters in UTF-8
    ids: int = 0
    bits: float = 0.0
    unknown: Counter[str] = field(default_factory=Counter)  # characters that are not in the vocabulary

    @property
    def bits_per_character(self) -> float:
        return self.bits / max(1, self.characters)

    @property
    def bits_per_byte(self) -> float:
        return self.bits / max(1, self.bytes)

    @property
    def loss(self) -> float:
        """Nats per id, as the validation loss of training."""
        return float(self.bits * np.log(2) / max(1, self.ids))

    def add(self, other: "Total") -> None:
        """Add the counts of another text."""
        self.characters += other.characters
        self.bytes += other.bytes
        self.ids += other.ids
        self.bits += other.bits
        self.unknown += other.unknown


def score_pieces(
    model: GPT, tokenizer: Tokenizer, pieces: Iterable[Piece], *, stride: int, total: Total
) -> Iterator[tuple[Piece, np.ndarray]]:
    """The same `pieces` of a normalised text, each with the surprise of its characters (or bytes) in bits, float64.

    What is done is counted in `total`. An unknown character costs UNKNOWN_BITS, and the model does not see it. A character
    that shares the id of the rare ones costs what that id costs; it is counted as unknown, too.
    """
    waiting: deque[tuple[Piece, np.ndarray]] = deque()

    def known() -> Iterator[np.ndarray]:
        for piece in pieces:
            ids = np.frombuffer(piece, np.uint8) if isinstance(piece, bytes) else tokenizer.ids_of(piece)
            waiting.append((piece, ids))
            yield ids[ids >= 0].astype(np.int64)

    bits = np.full(1, np.nan)  # of the known characters to come; the first one of the text is not predicted
    for losses, _ in predictions_of(model, known(), stride=stride):
        bits = np.concatenate((bits, losses.astype(np.float64) / np.log(2)))
        while waiting and (count := np.count_nonzero(waiting[0][1] >= 0)) <= len(bits):
            yield _priced(*waiting.popleft(), bits[:count], tokenizer, total)
            bits = bits[count:]
    for piece, ids in waiting:  # those after the last known character, or a text with one known character at most
        count = np.count_nonzero(ids >= 0)
        yield _priced(piece, ids, bits[:count], tokenizer, total)
        bits = bits[count:]


def _priced(piece: Piece, ids: np.ndarray, known: np.ndarray, tokenizer: Tokenizer, total: Total) -> tuple[Piece, np.ndarray]:
    """A piece with the bits of each of its ids, given those of its `known` ids."""
    bits = np.full(len(ids), UNKNOWN_BITS)
    bits[ids >= 0] = known
    predicted = ~np.isnan(bits)
    total.ids += int(predicted.sum())
    total.bits += float(bits[predicted].sum())
    if isinstance(piece, bytes):
        total.characters += int(((np.frombuffer(piece, np.uint8) & 0xC0) != 0x80)[predicted].sum())
        total.bytes += int(predicted.sum())
        return piece, bits
    total.characters += int(predicted.sum())
    total.bytes += int(utf8_lengths(code_points(piece))[predicted].sum())
    unknown = ids < 0
    if tokenizer.folded:
        unknown |= ids == tokenizer.vocab_size - 1
    total.unknown.update(piece[i] for i in np.flatnonzero(unknown))
    return piece, bits


def lines_of(scored: Iterable[tuple[Piece, np.ndarray]]) -> Iterator[Line]:
    """The lines of a scored text, each with its newline; parts of at most LONGEST characters of a line that is longer."""
    number, held, held_bits, is_bytes = 1, "", np.empty(0), False
    for piece, bits in scored:
        is_bytes = isinstance(piece, bytes)
        held += piece.decode("latin-1") if isinstance(piece, bytes) else piece  # a character stands for each byte
        held_bits = np.concatenate((held_bits, bits))
        start = 0
        while (end := held.find("\n", start, start + LONGEST) + 1) or len(held) - start > LONGEST:
            stop = end or start + LONGEST
            if is_bytes and not end:  # a cut at most three bytes before, so that no character is cut
                stop = next((at for at in range(stop, stop - 4, -1) if not "\x80" <= held[at] < "\xc0"), stop)
            yield _line(number, held[start:stop], held_bits[start:stop], is_bytes=is_bytes)
            number, start = number + bool(end), stop
        held, held_bits = held[start:], held_bits[start:]
    if held:
        yield _line(number, held, held_bits, is_bytes=is_bytes)


def _line(number: int, text: str, bits: np.ndarray, *, is_bytes: bool) -> Line:
    """A line of `text`, in which a character may stand for a byte."""
    if not is_bytes:
        return Line(number, text, bits)
    points = code_points(text.encode("latin-1").decode("utf-8", "surrogateescape"))
    lengths = utf8_lengths(points)
    starts = np.cumsum(lengths) - lengths
    is_part = (points >= 0xDC80) & (points <= 0xDCFF)  # a byte that is not part of a character
    shown = np.where(is_part, 0xFFFD, points).astype("<u4").tobytes().decode("utf-32-le")
    return Line(number, shown, np.add.reduceat(bits, starts))


def describe_unknown(total: Total, tokenizer: Tokenizer) -> str:
    """A line on the characters that the model does not know: how many, their cost, and the most frequent of them."""
    cost = "as much as the one id of the rare characters" if tokenizer.folded else f"{UNKNOWN_BITS:.1f} bits each"
    listed = [f"{character_name(character)} {count:,}x" for character, count in total.unknown.most_common(MOST_UNKNOWN)]
    more = f" and {len(total.unknown) - MOST_UNKNOWN:,} more" if len(total.unknown) > MOST_UNKNOWN else ""
    count = sum(total.unknown.values())
    return f"{count:,} of {total.characters:,} characters are unknown to the model and cost {cost}: {', '.join(listed)}{more}"


@dataclass
class Summary:
    """What `score` says about its texts as a whole: losses and sizes, as a table and as plain JSON types."""

    facts: dict[str, Any]  # the run, its step and the stride
    texts: list[tuple[str, Total]] = field(default_factory=list)
    characters: int = 0  # of all texts, first characters included, as other programs see them
    bytes: int = 0
    sizes: dict[str, int] = field(default_factory=dict)  # of other programs, in bytes
    ngram: tuple[int, float] | None = None  # order and bits per id

    @property
    def total(self) -> Total:
        """All texts together."""
        total = Total()
        for _, one in self.texts:
            total.add(one)
        return total

    def table(self) -> list[str]:
        """The lines of the table."""
        total = self.total
        rows = self.texts if len(self.texts) == 1 else [*self.texts, ("all texts", total)]
        lines = [HEAD, *(_row(label, one) for label, one in rows)]
        for name, size in self.sizes.items():
            counts = f"{name:<{LABEL}}{self.characters:>12,}{self.bytes:>12,}{size:>12,}"
            lines.append(f"{counts}{8 * size / max(1, self.characters):>11.4f}{8 * size / max(1, self.bytes):>11.4f}")
        if self.ngram is not None:
            order, bits = self.ngram
            bits_per_character = bits * total.ids / max(1, total.characters)
            bits_per_byte = bits * total.ids / max(1, total.bytes)
            label = f"order-{order} n-gram"
            lines.append(f"{label:<{LABEL + 36}}{bits_per_character:>11.4f}{bits_per_byte:>11.4f}{bits * math.log(2):>9.4f}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON types; bits are totals."""
        texts = [{"text": label, **_numbers(total)} for label, total in self.texts]
        ngram = None if self.ngram is None else {"order": self.ngram[0], "bits_per_id": round(self.ngram[1], 6)}
        return {**self.facts, "texts": texts, "total": _numbers(self.total), "compressed_bytes": self.sizes, "ngram": ngram}


def _row(label: str, total: Total) -> str:
    label = one_line(label)
    label = label if len(label) < LABEL else f"…{label[2 - LABEL :]}"
    return (
        f"{label:<{LABEL}}{total.characters:>12,}{total.bytes:>12,}{math.ceil(total.bits / 8):>12,}"
        f"{total.bits_per_character:>11.4f}{total.bits_per_byte:>11.4f}{total.loss:>9.4f}"
    )


def _numbers(total: Total) -> dict[str, Any]:
    return {
        "characters": total.characters,
        "bytes": total.bytes,
        "bits": round(total.bits, 4),
        "bits_per_character": round(total.bits_per_character, 6),
        "bits_per_byte": round(total.bits_per_byte, 6),
        "loss": round(total.loss, 6),
        "unknown": dict(total.unknown.most_common()),
    }
