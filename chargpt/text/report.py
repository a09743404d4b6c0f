"""What a text is like, and what a model can be expected to make of it: five lines before any time is spent on training."""

import gzip
import lzma
import math
import re
import unicodedata
from collections import Counter

import numpy as np

from chargpt.text.cache import Entry
from chargpt.text.tokenizer import Tokenizer, name

TRAIN_SAMPLE, VAL_SAMPLE = 2_000_000, 250_000  # characters; a longer text is judged by pieces from all over it
LONG_LINE = 12  # characters; shorter lines repeat by chance
ODD = {"Cc": "control", "Cf": "invisible", "Co": "private use", "Cn": "unassigned", "Cs": "surrogate"}
# How UTF-8 looks once it has been read as Latin-1 or cp1252 and written again.
GARBLED = re.compile("[\u00c2\u00c3][\u0080-\u00bf]|\u00e2\u20ac")


def examine(corpus: Entry) -> list[str]:
    """Four lines on the text: rarest and odd characters, repeated lines, and the bits per character to beat."""
    train, val = sample(corpus.train, TRAIN_SAMPLE), sample(corpus.val, VAL_SAMPLE)
    sampled = len(train) < len(corpus.train) or len(val) < len(corpus.val)
    estimate = f" (estimated from {len(train) + len(val):,} characters)" if sampled else ""
    train_text, val_text = corpus.tokenizer.decode(train), corpus.tokenizer.decode(val)
    return [
        f"rarest      {_rarest(corpus)}",
        f"odd         {_odd(corpus, train_text)}",
        f"repeats     {_repeats(train_text, val_text)}{estimate}",
        f"to beat     {_marks(train, val, val_text, corpus.tokenizer)}{estimate}",
    ]


def sample(ids: np.ndarray, size: int, *, pieces: int = 16) -> np.ndarray:
    """All of `ids`, or about `size` of them in pieces from all over."""
    if len(ids) <= size:
        return np.asarray(ids)
    starts = np.linspace(0, len(ids) - size // pieces, pieces).astype(np.int64)
    return np.concatenate([ids[start : start + size // pieces] for start in starts])


def _rarest(corpus: Entry) -> str:
    if corpus.tokenizer.characters is None:
        return f"{np.count_nonzero(corpus.counts == 0)} of 256 bytes never stand in it"
    counts = corpus.counts[: len(corpus.tokenizer.characters)]
    rarest = f"{name(corpus.tokenizer.characters[int(counts.argmin())])}, {_times(counts.min())}"
    rare = counts < 3
    if rare.sum() < 50:
        return rarest
    share = counts[rare].sum() / corpus.characters
    return f"{rarest}; {rare.sum():,} characters stand less than 3 times, {share:.2%} of the text: data.min_count=3 folds them"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _odd(corpus: Entry, text: str) -> str:
    """Characters that are seldom meant: they cost the model effort, and often betray a mistake made earlier."""
    if corpus.tokenizer.characters is None:
        return "not looked for among bytes"
    counts = dict(zip(corpus.tokenizer.characters, corpus.counts.tolist()))
    kinds: Counter[str] = Counter()
    for character, count in counts.items():
        kind = ODD.get(unicodedata.category(character))
        if kind and character not in "\t\n\r":
            kinds[kind] += count
    found = [f"{count:,} {kind}" for kind, count in kinds.items()]
    if replaced := counts.get("\ufffd"):
        found.append(f"{replaced:,} U+FFFD (it was decoded wrongly once)")
    if garbled := len(GARBLED.findall(text)):
        found.append(f"{garbled:,} like Ã© (UTF-8 read as something else; get the original)")
    if returns := counts.get("\r"):
        others = counts.get("\n", 0)
        ends = "all line ends are \\r\\n" if returns == others else f"mixed line ends, {returns:,} \\r beside {others:,} \\n"
        found.append(f"{ends} (data.newlines=fold makes them \\n)")
    return ", ".join(found) or "no odd characters"


def _repeats(train: str, val: str) -> str:
    """What is learned twice, and what the validation loss flatters: lines that stand before, lines that stand in both."""
    lines, val_lines = ([line for line in text.split("\n") if len(line) >= LONG_LINE] for text in (train, val))
    once = set(lines)
    again = sum(map(len, lines)) - sum(map(len, once))
    shared = sum(len(line) for line in val_lines if line in once)
    return (
        f"{again / max(1, len(train)):.1%} of the training part is lines that it has already; "
        f"{shared / max(1, len(val)):.1%} of the validation part is lines of the training part"
    )


def _marks(train: np.ndarray, val: np.ndarray, val_text: str, tokenizer: Tokenizer) -> str:
    unit, content = ("byte", val.tobytes()) if tokenizer.characters is None else ("character", val_text.encode())
    order = 3 if tokenizer.vocab_size**4 < 2**63 else 2
    ngram = ngram_bits(train, val, vocab_size=tokenizer.vocab_size, order=order)
    packed = {"gzip": gzip.compress(content), "xz": lzma.compress(content)}
    marks = [f"{what} {8 * len(data) / len(val):.2f}" for what, data in packed.items()] + [f"order-{order} n-gram {ngram:.2f}"]
    return f"{', '.join(marks)} bits per {unit}; the last is a loss of {ngram * math.log(2):.2f}"


def ngram_bits(train: np.ndarray, val: np.ndarray, *, vocab_size: int, order: int) -> float:
    """Bits per character of `val` under a model that counted in `train` what follows each `order` characters.

    Shorter contexts fill in for what it has not counted, by as much as a context was followed by different characters
    (Witten and Bell 1991). vocab_size ** (order + 1) must be below 2^63.
    """
    grams, counts = np.unique(_grams(train, order + 1, vocab_size), return_counts=True)
    probability = np.full(len(val) - order, 1 / vocab_size)
    wanted = _grams(val, order + 1, vocab_size)
    for length in range(1, order + 2):
        # Of sorted grams, those with the same context stand together.
        suffixes, place = np.unique(grams % vocab_size**length, return_inverse=True)
        times = np.bincount(place, weights=counts)
        contexts, first = np.unique(suffixes // vocab_size, return_index=True)
        total = np.add.reduceat(times, first)
        kinds = np.diff(first, append=len(suffixes))
        gram = wanted % vocab_size**length
        seen = _found(suffixes, times, gram)
        in_context, followers = _found(contexts, total, gram // vocab_size), _found(contexts, kinds, gram // vocab_size)
        mixed = (seen + followers * probability) / np.maximum(in_context + followers, 1)
        probability = np.where(in_context > 0, mixed, probability)
    return float(-np.log2(probability).mean())


def _grams(ids: np.ndarray, length: int, vocab_size: int) -> np.ndarray:
    """Every run of `length` ids as a number, the last id its last digit in base vocab_size."""
    number = np.zeros(len(ids) - length + 1, np.int64)
    for i in range(length):
        number = number * vocab_size + ids[i : len(ids) - length + 1 + i]
    return number


def _found(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The value at each wanted key, 0 where there is none; `keys` ascend."""
    place = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], 0)
