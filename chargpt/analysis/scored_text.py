"""A text with the surprise of each character, as lines, and summed up in a table."""

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from chargpt.model import GPT
from chargpt.sampling.surprisal import losses_of
from chargpt.text.tokenizer import Tokenizer, character_name, code_points, utf8_lengths

UNKNOWN_BITS = float(np.log2(0x110000))  # the price of an unknown character: a choice among all code points of Unicode
MOST_UNKNOWN = 8  # unknown characters that are named
LONGEST = 2**16  # characters of a line; a page could not show a longer one


@dataclass(frozen=True)
class Line:
    """A line of a text."""

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


@dataclass(frozen=True)
class Total:
    """What a model needs for one text or for several. The first character of a text is not predicted, and not counted."""

    characters: int = 0
    bytes: int = 0  # of the characters in UTF-8
    ids: int = 0
    bits: float = 0.0
    unknown: Counter[str] = field(default_factory=Counter)  # characters that are not in the vocabulary

    def __add__(self, other: "Total") -> "Total":
        return Total(*(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values())))

    @property
    def bits_per_character(self) -> float:
        return self.bits / max(1, self.characters)

    @property
    def bits_per_byte(self) -> float:
        return self.bits / max(1, self.bytes)

    @property
    def loss(self) -> float:
        """Nats per id, as the validation loss of training."""
        return self.bits * math.log(2) / max(1, self.ids)


def score_text(
    model: GPT, tokenizer: Tokenizer, text: str, *, stride: int, progress: Callable[[int], object] = lambda ids: None
) -> tuple[np.ndarray, Total]:
    """The surprise of each character of a normalised `text` in bits, (len(text),) float64, and their sums.

    An unknown character costs UNKNOWN_BITS, and the model does not see it. A character that shares the id of the rare ones
    costs what that id costs; it is counted as unknown, too. In a vocabulary of bytes, the bits of a character are those of its
    bytes. `progress` is called with the number of ids that have been predicted since its last call.
    """
    ids, points = tokenizer.ids_of(text), code_points(text)
    losses = [np.full(1, np.nan)]  # the first one of the text is not predicted
    for found in losses_of(model, ids[ids >= 0].astype(np.int64), stride=stride):
        losses.append(found)
        progress(len(found))
    bits = np.full(len(ids), UNKNOWN_BITS)
    bits[ids >= 0] = np.concatenate(losses, dtype=np.float64)[: np.count_nonzero(ids >= 0)] / np.log(2)
    predicted, lengths = ~np.isnan(bits), utf8_lengths(points)
    count, total = int(predicted.sum()), float(bits[predicted].sum())
    if tokenizer.characters is None:
        bits = np.add.reduceat(bits, np.cumsum(lengths) - lengths) if len(text) else bits
        return bits, Total(int(np.count_nonzero(~np.isnan(bits))), count, count, total)
    is_unknown = (ids < 0) | (ids == tokenizer.vocab_size - 1 if tokenizer.folded else False)
    unknown = Counter(text[i] for i in np.flatnonzero(is_unknown))
    return bits, Total(count, int(lengths[predicted].sum()), count, total, unknown)


def text_of(ids: np.ndarray, tokenizer: Tokenizer) -> str:
    """The text of `ids`, of which `Tokenizer.ids_of` makes the same ids."""
    is_bytes = tokenizer.characters is None
    return ids.astype(np.uint8).tobytes().decode("utf-8", "surrogateescape") if is_bytes else tokenizer.decode(ids)


def lines_of(text: str, bits: np.ndarray) -> list[Line]:
    """The lines of a scored text, each with its newline; parts of at most LONGEST characters of a line that is longer.

    U+FFFD stands for a byte that is not part of a character.
    """
    shown = re.sub("[\udc80-\udcff]", "\ufffd", text)
    parts = re.findall(rf"[^\n]{{0,{LONGEST - 1}}}\n|[^\n]{{1,{LONGEST}}}", shown)
    numbers = accumulate((part.endswith("\n") for part in parts), initial=1)
    cuts = np.cumsum([len(part) for part in parts])[:-1]
    return [Line(*line) for line in zip(numbers, parts, np.split(bits, cuts))]


def describe_unknown(total: Total, tokenizer: Tokenizer) -> str:
    """A line on the characters that the model does not know: how many, their cost, and the most frequent of them."""
    cost = "one rare character" if tokenizer.folded else f"{UNKNOWN_BITS:.1f} bits"
    listed = [f"{character_name(character)} {count:,}x" for character, count in total.unknown.most_common(MOST_UNKNOWN)]
    more = f" and {len(total.unknown) - MOST_UNKNOWN:,} more" if len(total.unknown) > MOST_UNKNOWN else ""
    count = total.unknown.total()
    what = f"{count:,} of {total.characters:,} characters are unknown to the model, and each counts as {cost}"
    return f"{what}: {', '.join(listed)}{more}"


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What `score` says about its texts as a whole: losses and sizes."""

    facts: dict[str, Any]  # the run, its step, its context and the stride
    texts: list[tuple[str, Total]]
    characters: int  # of all texts, first characters included, as other programs see them
    bytes: int
    sizes: dict[str, int]  # of other programs, in bytes
    ngram: tuple[int, float] | None  # order and bits per id

    @property
    def total(self) -> Total:
        """All texts together."""
        return sum((total for _, total in self.texts), Total())

    @property
    def rows(self) -> list[tuple[str, Total]]:
        """The texts, and if there are several, all of them together."""
        return self.texts if len(self.texts) == 1 else [*self.texts, ("all texts", self.total)]

    @property
    def ngram_bits(self) -> tuple[float, float]:
        """What the n-gram model needs for a character, and for a byte."""
        total, bits = self.total, 0.0 if self.ngram is None else self.ngram[1]
        return bits * total.ids / max(1, total.characters), bits * total.ids / max(1, total.bytes)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON types; bits are totals."""
        texts = [{"text": label, **_numbers(total)} for label, total in self.texts]
        ngram = None if self.ngram is None else {"order": self.ngram[0], "bits_per_id": round(self.ngram[1], 6)}
        return {**self.facts, "texts": texts, "total": _numbers(self.total), "compressed_bytes": self.sizes, "ngram": ngram}


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
