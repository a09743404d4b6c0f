"""The text report: unusual characters, repeated lines, and the compression that a model should beat."""

import gzip
import lzma
import math
import re
import unicodedata
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from chargpt.terminal import Notice
from chargpt.text.cache import EncodedText
from chargpt.text.corpus import Corpus
from chargpt.text.items import ItemMarks
from chargpt.text.ngram import copying, ngram_probabilities
from chargpt.text.tokenizer import Tokenizer, character_name

TRAIN_SAMPLE = 2_000_000  # characters of the training split; a longer one is judged by pieces from all over it
VAL_SAMPLE = 250_000  # characters of the validation split, likewise
COMPRESSED_SAMPLE = 300_000  # characters of the training split that the compression programs see; more takes seconds
COPIED_SAMPLE = 50_000  # characters of the validation split that may be copies
COPIED_WINDOW = 128  # characters: how far back a copy is looked for
# Characters of the training split on which an n-gram model compares the validation split with other text.
SPLIT_SAMPLE = 500_000
# The same of the validation split.
SPLIT_VAL_SAMPLE = 50_000
# Pieces of other text, spread over the training split.
SPLIT_PIECES = 16
# Factor between the two losses from which on the validation split is another kind of text.
OTHER_TEXT = 1.15
# Their difference at least then, in nats per character.
OTHER_NATS = 0.3
# Standard errors of their difference, at least.
SURE = 3.0
MAX_OVERLAP = 0.2  # of the validation split; code and reference texts repeat up to a tenth of their lines
OVERLAP_WARNING = (
    "{:.0%} of the validation split is lines of the training split, more than 20%: the validation loss will be too low; remove "
    "the copies from the text, or set data.val_text to another text"
)
LONG_LINE = 12  # characters; shorter lines repeat by chance, except in a list of them; an empty line does not count
ODD = {"Cc": "control", "Cf": "invisible", "Co": "private use", "Cn": "unassigned", "Cs": "surrogate"}
MAX_NAMED = 3  # odd characters of a kind
# Invisible characters that are part of correct text: what they do, and what a text contains that needs them.
EMOJI = re.compile("[\u2194-\u27bf\u2934-\u2b55\U0001f000-\U0001faff]")
JOINED_SCRIPTS = re.compile("[\u0600-\u08ff\u0900-\u109f\u1780-\u17ff\u1800-\u18af]")  # Arabic, Indic, Khmer, Mongolian
RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff]")
HARMLESS = {
    "\u200d": ("join emoji or letters", (EMOJI, JOINED_SCRIPTS)),
    "\u200c": ("separate letters", (JOINED_SCRIPTS,)),
    "\u200e": ("direct right-to-left text", (RIGHT_TO_LEFT,)),
    "\u200f": ("direct right-to-left text", (RIGHT_TO_LEFT,)),
    **{chr(point): ("are part of flags", (re.compile("\U0001f3f4"),)) for point in range(0xE0020, 0xE0080)},
}
LIST_LINES = 2000  # lines of a text that are looked at to tell whether it is a list
FEWEST_LINES = 20  # lines that a list has at least
LIST_LINE = 60  # characters; most lines of a list are no longer
LIST_NAME = 20  # characters of a line that a message shows
SORTED = 0.9  # rank correlation of a line's place and its place in the alphabet, from which on a list is sorted
# UTF-8 that was decoded as Latin-1 or cp1252 and encoded again.
GARBLED = re.compile("[\u00c2\u00c3][\u0080-\u00bf]|\u00e2\u20ac")


def examine(corpus: Corpus) -> list[Notice]:
    """Four notices on the text: rarest and odd characters, repeated lines, and the bits per character to beat.

    Further ones warn of files that are read as they are although they have a structure, of a sorted list, and if too much of
    the validation split is in the training split as well. This takes seconds for a long text.
    """
    train, val = sample(corpus.train, TRAIN_SAMPLE), sample(corpus.val, VAL_SAMPLE)
    sampled = len(train) < len(corpus.train) or len(val) < len(corpus.val)
    estimate = f" (estimated from {len(train) + len(val):,} characters)" if sampled else ""
    train_text, val_text = corpus.tokenizer.decode(train), corpus.tokenizer.decode(val)
    repeated, shared = repeated_lines(train_text, val_text)
    problems = _split_problems(corpus, train_text, val_text, shared=shared)
    warnings = [*corpus.warnings, *(problem.text for problem in problems)]
    return [
        Notice("rarest", _rarest(corpus), "detail"),
        _odd(corpus, train_text),
        Notice(
            "repeats",
            f"{repeated:.1%} of the training split is repeated lines; {shared:.1%} of the validation split is lines "
            f"that are also in the training split{estimate}",
            "detail",
        ),
        *(Notice("warning", warning) for warning in warnings),
        Notice("to beat", f"{_baselines(train, val, corpus)}{estimate}", "detail"),
    ]


class SplitProblem(NamedTuple):
    """Why the loss on the validation split does not say how well a model predicts new text of this kind."""

    text: str  # what is wrong, and what to do
    setting: str  # that fixes it, as section.key=value; empty if there is none


def split_problems(corpus: Corpus) -> list[SplitProblem]:
    """What is wrong with the validation split, as `examine` warns."""
    train, val = (corpus.tokenizer.decode(sample(*of)) for of in ((corpus.train, TRAIN_SAMPLE), (corpus.val, VAL_SAMPLE)))
    return _split_problems(corpus, train, val, shared=repeated_lines(train, val)[1])


def _split_problems(corpus: Corpus, train: str, val: str, *, shared: float) -> list[SplitProblem]:
    problems = []
    if text := _sorted_list(train, val):
        problems.append(SplitProblem(text, "data.shuffle=lines"))
    if shared > MAX_OVERLAP:
        problems.append(SplitProblem(OVERLAP_WARNING.format(shared), ""))
    if not problems and (text := _other_text(corpus)):
        problems.append(SplitProblem(text, f"data.split={corpus.other_split}"))
    return problems


def sample(ids: np.ndarray, size: int, *, pieces: int = 16) -> np.ndarray:
    """All of `ids`, or about `size` of them in pieces from all over."""
    if len(ids) <= size:
        return np.asarray(ids)
    starts = np.linspace(0, len(ids) - size // pieces, pieces).astype(np.int64)
    return np.concatenate([ids[start : start + size // pieces] for start in starts])


def _rarest(corpus: EncodedText) -> str:
    if corpus.tokenizer.characters is None:
        return f"{np.count_nonzero(corpus.counts == 0)} of 256 byte values do not occur"
    counts = corpus.counts[: len(corpus.tokenizer.characters)]
    occurs = np.flatnonzero(counts if counts.any() else counts == 0)  # a vocabulary may have characters that the text lacks
    rarest = int(occurs[counts[occurs].argmin()])
    named = f"{character_name(corpus.tokenizer.characters[rarest])}, {_times(counts[rarest])}"
    rare = (counts > 0) & (counts < 3)
    if rare.sum() < 50:
        return named
    share = counts[rare].sum() / corpus.characters
    return f"{named}; {rare.sum():,} characters occur less than 3 times, {share:.2%} of the text (data.min_count=3 merges them)"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _odd(corpus: EncodedText, text: str) -> Notice:
    """Characters that are rarely intended: the model spends effort on them, and they often come from an earlier mistake."""
    if corpus.tokenizer.characters is None:
        return Notice("odd", "not checked with a vocabulary of bytes", "detail")
    counts = {character: count for character, count in zip(corpus.tokenizer.characters, corpus.counts.tolist()) if count}
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    harmless: Counter[str] = Counter()
    for character, count in counts.items():
        kind = ODD.get(unicodedata.category(character))
        does, needed_by = HARMLESS.get(character, ("", ()))
        if any(pattern.search(corpus.tokenizer.characters) for pattern in needed_by):
            harmless[does] += count
        elif kind and character not in "\t\n\r":
            kinds[kind][character] += count
    found = [f"{of_kind.total():,} {kind} ({_named(of_kind)})" for kind, of_kind in kinds.items()]
    if replaced := counts.get("\ufffd"):
        found.append(f"{replaced:,} U+FFFD (the text was decoded wrongly before)")
    if garbled := len(GARBLED.findall(text)):
        found.append(f"{garbled:,} like Ã© (UTF-8 decoded with another encoding; use the original file)")
    if returns := counts.get("\r"):
        newlines = counts.get("\n", 0)
        ends = f"mixed line ends, {returns:,} \\r and {newlines:,} \\n"
        if returns == newlines:
            ends = "all line ends are \\r\\n"
        elif not newlines:
            ends = "all line ends are \\r"
        found.append(f"{ends} (data.newlines=fold changes them to \\n)")
    well = [f"{count:,} invisible that {does} (harmless)" for does, count in harmless.items()]
    return Notice("odd", "; ".join([", ".join(found) or "no odd characters", *well]), "line" if found else "detail")


def _named(counts: Counter[str]) -> str:
    """The most frequent characters, by code point and name."""
    names = [f"U+{ord(c):04X} {unicodedata.name(c, '')}".strip() for c, _ in counts.most_common(MAX_NAMED)]
    return ", ".join([*names, *["others"] * (len(counts) > MAX_NAMED)])


def repeated_lines(train: str, val: str) -> tuple[float, float]:
    """The share of the training split that is lines which it already contains, and the share of the validation split that is
    lines of the training split. The first are learned twice; the second lower the validation loss."""
    lines, val_lines = (text.split("\n") for text in (train, val))
    some = _some(lines)
    shortest = 1 if _is_list(some) and np.median([len(line) for line in some]) < LONG_LINE else LONG_LINE
    lines, val_lines = ([line for line in part if len(line) >= shortest] for part in (lines, val_lines))
    distinct = set(lines)
    repeated = sum(map(len, lines)) - sum(map(len, distinct))
    shared = sum(len(line) for line in val_lines if line in distinct)
    return repeated / max(1, len(train)), shared / max(1, len(val))


def _some(lines: list[str]) -> list[str]:
    """At most LIST_LINES of the lines that are not empty, from all over, without what is at their ends."""
    filled = [line for line in map(str.strip, lines) if line]
    return filled[:: max(1, len(filled) // LIST_LINES)]


def _is_list(lines: list[str]) -> bool:
    """Whether `lines` are those of a list: most of them short, and few of them equal."""
    short = sum(len(line) <= LIST_LINE for line in lines)
    return len(lines) >= FEWEST_LINES and short > 0.9 * len(lines) and len(set(lines)) > len(lines) / 2


def _sorted_list(train: str, val: str) -> str:
    """A warning if the text is a list in alphabetical order, so that the validation split has other initials; empty if not.

    Case and accents do not count, and the order need not be perfect.
    """
    lines, val_lines = _some(train.split("\n")), _some(val.split("\n")[1:])
    if not (_is_list(lines) and val_lines):
        return ""
    names, places = np.unique([_sort_key(line) for line in lines], return_inverse=True)
    correlation = 0.0 if len(names) < 2 else float(np.corrcoef(places, np.arange(len(places)))[0, 1])
    if abs(correlation) < SORTED:
        return ""
    after = [_sort_key(line) > names[-1 - len(names) // 10] for line in val_lines]
    before = [_sort_key(line) < names[len(names) // 10] for line in val_lines]
    if np.mean(after if correlation > 0 else before) < SORTED:
        return ""
    first, last = (line if len(line) <= LIST_NAME else line[: LIST_NAME - 3] + "..." for line in (val_lines[0], val_lines[-1]))
    return (
        f"the lines are in alphabetical order, so the validation split is only those from {first!r} to {last!r}, unlike the "
        "training split; add data.shuffle=lines, which shuffles the lines before the split"
    )


def _other_text(corpus: Corpus) -> str:
    """A warning if the validation split is another kind of text than the training split; empty if not."""
    if not corpus.other_split:
        return ""
    own, spread, error = split_losses(corpus)
    if not _differ(own, spread, error):
        return ""
    kind = "harder" if own > spread else "easier"
    return (
        f"the validation split is {kind} than the rest of the text: an n-gram model has the loss {own:.2f} on it, and "
        f"{spread:.2f} on as much text from all over that it has not counted; for a validation split from all over, add "
        f"data.split={corpus.other_split}"
    )


def is_split_harder(corpus: EncodedText) -> bool:
    """Whether the validation split is a harder kind of text than the training split."""
    own, spread, error = split_losses(corpus)
    return own > spread and _differ(own, spread, error)


def _differ(own: float, spread: float, error: float) -> bool:
    """Whether two losses of `split_losses` are those of different kinds of text."""
    is_far = own < spread / OTHER_TEXT or own > spread * OTHER_TEXT
    return is_far and abs(own - spread) >= max(OTHER_NATS, SURE * error)


def split_losses(corpus: EncodedText) -> tuple[float, float, float]:
    """The loss of an n-gram model on the validation split, that on as much text that is spread over the training split and left
    out of what it counts, and the standard error of their difference; nats per character."""
    train, val = sample(corpus.train, SPLIT_SAMPLE), sample(corpus.val, SPLIT_VAL_SAMPLE)
    size = max(1, min(len(val), len(train) // 4) // SPLIT_PIECES)
    starts = np.linspace(0, len(train) - size, SPLIT_PIECES).astype(np.int64)
    places = np.minimum((starts[:, None] + np.arange(size)).ravel(), len(train) - 1)
    counted = np.delete(train, places)
    order = _order(corpus.tokenizer.vocab_size, counted, val)
    if order < 1 or size <= order:
        return 0.0, 0.0, math.inf
    both = np.concatenate([val, train[places]])
    loss = -np.log(ngram_probabilities(counted, both, vocab_size=corpus.tokenizer.vocab_size, order=order))
    losses = [loss[: len(val) - order], loss[len(val) :]]
    pieces = [[piece.mean() for piece in np.array_split(loss, SPLIT_PIECES)] for loss in losses]
    error = math.sqrt(sum(np.var(means, ddof=1) / SPLIT_PIECES for means in pieces))
    return float(losses[0].mean()), float(losses[1].mean()), error


def _sort_key(line: str) -> str:
    """`line` without case and accents."""
    return "".join(c for c in unicodedata.normalize("NFKD", line.casefold()) if not unicodedata.combining(c))


def ngram_loss_of(corpus: EncodedText) -> float:
    """The loss of an n-gram model on the validation split, nats per character: as in the text report."""
    train, val = sample(corpus.train, TRAIN_SAMPLE), sample(corpus.val, VAL_SAMPLE)
    return ngram_order_and_bits(train, val, corpus.tokenizer, marks=corpus.marks)[1] * math.log(2)


def ngram_loss_and_copying(corpus: EncodedText) -> tuple[float, float]:
    """`ngram_loss_of`, and how much lower it is, as a factor, if the n-gram model also copies from the last characters."""
    train, val = sample(corpus.train, TRAIN_SAMPLE), sample(corpus.val, VAL_SAMPLE)
    order = _order(corpus.tokenizer.vocab_size, train, val)
    probability = ngram_probabilities(train, val, vocab_size=corpus.tokenizer.vocab_size, order=order)
    part = sample(np.arange(len(probability)), COPIED_SAMPLE)
    loss = float(-np.log(_counted(probability, val, corpus.marks)).mean())
    return loss, copying(val[order:][part], probability[part], window=COPIED_WINDOW)


def ngram_order_and_bits(
    train: np.ndarray, val: np.ndarray, tokenizer: Tokenizer, *, marks: ItemMarks | None = None
) -> tuple[int, float]:
    """The order of the n-gram model for this vocabulary, and its bits per character; with `marks`, labels do not count."""
    order = _order(tokenizer.vocab_size, train, val)
    probability = ngram_probabilities(train, val, vocab_size=tokenizer.vocab_size, order=order)
    return order, float(-np.log2(_counted(probability, val, marks)).mean())


def _counted(probability: np.ndarray, val: np.ndarray, marks: ItemMarks | None) -> np.ndarray:
    """The probabilities, of the last ids of `val`, that count: with `marks`, not those of labels."""
    counted = None if marks is None else marks.counted(val)[len(val) - len(probability) :]
    return probability if counted is None or not counted.any() else probability[counted]


def _order(vocab_size: int, train: np.ndarray, val: np.ndarray) -> int:
    return min(3 if vocab_size**4 < 2**63 else 2, len(train) - 1, len(val) - 1)


def _baselines(train: np.ndarray, val: np.ndarray, corpus: EncodedText) -> str:
    tokenizer = corpus.tokenizer
    seen, content = (_content(ids, tokenizer) for ids in (sample(train, COMPRESSED_SAMPLE), val))
    packed = {"gzip": gzip.compress, "xz": _lzma}
    with ThreadPoolExecutor() as pool:  # compressing lets other threads run, and takes most of the report's time
        sizes = {what: [pool.submit(compress, part) for part in (seen + content, seen)] for what, compress in packed.items()}
        order, ngram = ngram_order_and_bits(train, val, tokenizer, marks=corpus.marks)
        # What the text adds to the compressed size of `seen` is its size for a program that knows `seen`.
        added = {what: len(both.result()) - len(alone.result()) for what, (both, alone) in sizes.items()}
    bits = [f"{what} {8 * size / len(val):z.2f}" for what, size in added.items()]
    unit = "byte" if tokenizer.characters is None else "character"
    part = f" (gzip and xz: {COMPRESSED_SAMPLE:,} {unit}s of it)" if len(train) > COMPRESSED_SAMPLE else ""
    return (
        f"{', '.join(bits)}, order-{order} n-gram {ngram:z.2f} bits per {unit} of validation text, having seen the training "
        f"text{part}; as a loss, the n-gram model has {ngram * math.log(2):z.2f}"
    )


def _content(ids: np.ndarray, tokenizer: Tokenizer) -> bytes:
    return ids.tobytes() if tokenizer.characters is None else tokenizer.decode(ids).encode()


def _lzma(data: bytes) -> bytes:
    """What xz compresses with, without the padding of its files to whole groups of four bytes."""
    return lzma.compress(data, lzma.FORMAT_ALONE)
