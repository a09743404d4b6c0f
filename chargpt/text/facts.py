"""Facts about a text, and the n-gram model behind some of them: measured once, and kept as facts.json in its cache entry."""

import contextlib
import dataclasses
import functools
import gzip
import itertools
import lzma
import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from chargpt.files import publish_file
from chargpt.text.cache import EncodedText
from chargpt.text.marks import divider_in
from chargpt.text.remains import TOLD

FACTS = "facts.json"
TRAIN_SAMPLE, VAL_SAMPLE = 2_000_000, 250_000  # characters of the splits; a longer one is judged by pieces from all over it
COMPRESSED_SAMPLE = 100_000, 50_000  # characters of the splits that the compression programs see; more takes seconds
COPIED_SAMPLE, COPIED_WINDOW = 50_000, 128  # characters of the validation split that may be copies, of what is so far before
SPLIT_SAMPLE, SPLIT_VAL_SAMPLE = 500_000, 50_000  # characters of the splits that an n-gram model compares
PIECES = 16  # of a text, spread over it
OTHER_TEXT = 1.15  # factor between the two losses above which the validation split is another kind of text
OTHER_NATS, SURE = 0.3, 3.0  # their difference then at least, in nats per character and in its standard errors
LONG_LINE = 12  # characters; shorter lines repeat by chance, except in a list of them; an empty line does not count
FEWEST_LINES, LIST_LINES = 20, 2000  # lines that a list has at least, and that are looked at to tell whether a text is one
LIST_LINE = 60  # characters; most lines of a list are no longer
NO_LETTERS = re.compile(r"[\W\d_]+")  # numbers, times and brackets, which may be between words: 2024年3月
SORTED = 0.9  # rank correlation of a line's place and its place in the alphabet, above which a list is sorted
HIGHEST_ORDER = 3  # of the n-gram model
NGRAM_MODEL = "an n-gram model (a table of character counts)"  # what a message calls it
SHORTEST_COPY, LONGEST_COPY = 4, 20  # ids that must agree before the next one is copied; longer matches count as the longest
AROUND = 20  # characters on both sides of what a message quotes
ROUNDS = 20  # of expectation maximisation
# gzip, and xz without the padding of its files to whole groups of four bytes
PACKERS: tuple[Callable[[bytes], bytes], ...] = (gzip.compress, functools.partial(lzma.compress, format=lzma.FORMAT_ALONE))


@dataclass(frozen=True, kw_only=True)
class TextFacts:
    """What was measured of a text, or of pieces of a long one. Losses are nats per character of the validation split."""

    entropy: float  # the loss of a model that knows the frequencies of the characters alone
    ngram_order: int
    ngram_loss: float  # of an n-gram model
    copying: float  # factor on this loss if the n-gram model also copies from the last characters
    own_loss: float  # of an n-gram model on the validation split, for the comparison of the splits
    spread_loss: float  # the same on as much text from all over the training split, which it has not counted
    split_error: float  # the standard error of the difference of these two
    repeated: float  # share of the training split that is lines which it already contains
    shared: float  # share of the validation split that is lines of the training split
    is_sorted: bool  # whether it is a list in alphabetical order, so that the validation split has other initials
    remains: dict[str, tuple[int, int, str]]  # of other formats: how many, the line of the first one, and the words around it
    gzip_bits: float  # what gzip needs for a character of the validation split after the training split
    xz_bits: float  # the same of xz
    divider: str  # a mark that returns again and again, and may be between documents; empty without one
    sampled: int  # characters of the pieces, or of the whole text

    @property
    def other_kind(self) -> str:
        """What the validation split is, `harder` or `easier`, if it is another kind of text than the training split."""
        low, high = sorted((self.own_loss, self.spread_loss))
        is_other = high > low * OTHER_TEXT and high - low >= max(OTHER_NATS, SURE * self.split_error)
        return ("harder" if self.own_loss > self.spread_loss else "easier") if is_other else ""


def facts_of(corpus: EncodedText) -> TextFacts:
    """The facts about a text, from its entry of the cache if they are there."""
    of = [len(corpus.train), len(corpus.val)]  # a part of the text has its own facts
    if not corpus.is_validated:
        learned = max(1, len(corpus.train) - len(corpus.evaluation_ids))
        corpus = dataclasses.replace(corpus, train=corpus.train[:learned], val=corpus.train[learned:])
    return corpus.kept(FACTS, of, lambda: dataclasses.asdict(measure(corpus)), lambda found: TextFacts(**found))


def keep_facts(corpus: EncodedText, other: EncodedText) -> None:
    """Keep the facts about a text for the same one with more characters in its vocabulary. Never raises."""
    if corpus.folder is not None and other.folder is not None:
        with contextlib.suppress(OSError):
            publish_file(other.folder / FACTS, (corpus.folder / FACTS).read_bytes())


def measure(corpus: EncodedText) -> TextFacts:
    """The facts about a text, whatever its vocabulary has beside the characters of the text. This takes up to half a second."""
    train, val = sample(corpus.train, TRAIN_SAMPLE), sample(corpus.val, VAL_SAMPLE)
    text, val_text = corpus.tokenizer.decode(train), corpus.tokenizer.decode(val)
    shares = corpus.counts[corpus.counts > 0] / corpus.counts.sum()
    with ThreadPoolExecutor() as pool:  # compressing lets other threads run, and takes most of the time
        packed = [pool.submit(_added_bits, pack, corpus, train, val) for pack in PACKERS]
        repeated, shared = repeated_lines(text, val_text)
        return TextFacts(
            entropy=float(-(shares * np.log(shares)).sum()),
            repeated=repeated,
            shared=shared,
            is_sorted=_is_sorted(text, val_text),
            remains={one.name: _told(text, found) for one in TOLD if (found := one.found_in(text))},
            divider=divider_in(text),
            sampled=len(train) + len(val),
            **_predictability(corpus, train, val),
            **_split_losses(corpus),
            gzip_bits=packed[0].result(),
            xz_bits=packed[1].result(),
        )


def sample(ids: np.ndarray, size: int) -> np.ndarray:
    """All of `ids`, or about `size` of them in PIECES pieces from all over."""
    if len(ids) <= size:
        return np.asarray(ids)
    starts = np.linspace(0, len(ids) - size // PIECES, PIECES).astype(np.int64)
    return np.concatenate([ids[start : start + size // PIECES] for start in starts])


def _added_bits(pack: Callable[[bytes], bytes], corpus: EncodedText, train: np.ndarray, val: np.ndarray) -> float:
    """What `val` adds to the compressed size of the training split, in bits for each id."""
    decode, parts = corpus.tokenizer.decode, [*map(sample, (train, val), COMPRESSED_SAMPLE)]
    seen, new = (ids.tobytes() if corpus.tokenizer.characters is None else decode(ids).encode() for ids in parts)
    return 8 * (len(pack(seen + new)) - len(pack(seen))) / len(parts[1])


def repeated_lines(train: str, val: str) -> tuple[float, float]:
    """The share of the training split that is lines which it already contains, and the share of the validation split that is
    lines of the training split. The first are learned twice; the second lower the validation loss."""
    shortest = 1 if is_list_of_words(train) else LONG_LINE
    lines, val_lines = ([line for line in text.split("\n") if len(line) >= shortest] for text in (train, val))
    distinct = set(lines)
    repeated, shared = sum(map(len, lines)) - sum(map(len, distinct)), sum(len(line) for line in val_lines if line in distinct)
    return repeated / max(1, len(train)), shared / max(1, len(val))


def _told(text: str, found: Sequence[re.Match[str]]) -> tuple[int, int, str]:
    at = found[0].start()
    begins = max(text.rfind("\n", 0, at) + 1, at - AROUND)
    return len(found), 1 + text.count("\n", 0, at), text[begins : at + AROUND].partition("\n")[0]


def is_list_of_words(text: str) -> bool:
    """Whether a text is a list of names or words, most of them short."""
    lines = _lines_of_list(text)
    return bool(lines) and float(np.median([len(line) for line in lines])) < LONG_LINE


def _lines_of_list(text: str) -> list[str]:
    """At most LIST_LINES lines from all over a list, most of whose lines are short and few equal; none of any other text."""
    filled = [line for line in map(str.strip, text.split("\n")) if line]
    lines = filled[:: max(1, len(filled) // LIST_LINES)]
    short = sum(len(line) <= LIST_LINE for line in lines)
    is_list = len(lines) >= FEWEST_LINES and short > 0.9 * len(lines) and len(set(lines)) > len(lines) / 2
    return lines if is_list else []


def _is_sorted(train: str, val: str) -> bool:
    """Whether a text is a list in alphabetical order, and its validation split beyond nearly all of its training split. Case,
    accents, numbers and times do not count, and the order need not be perfect."""

    def key(line: str) -> str:
        text = unicodedata.normalize("NFKD", NO_LETTERS.sub(" ", line.casefold()).strip())
        return "".join(itertools.filterfalse(unicodedata.combining, text))

    lines, val_lines = _lines_of_list(train), [line for line in map(str.strip, val.split("\n")[1:]) if line]
    names, places = np.unique([key(line) for line in lines], return_inverse=True)
    if not val_lines or len(names) < FEWEST_LINES:
        return False
    correlation = np.corrcoef(places, np.arange(len(places)))[0, 1]
    border = names[-1 - len(names) // 10] if correlation > 0 else names[len(names) // 10]
    beyond = np.mean([(key(line) > border) == (correlation > 0) for line in val_lines[:LIST_LINES]])
    return bool(abs(correlation) >= SORTED and beyond >= SORTED)


def _predictability(corpus: EncodedText, train: np.ndarray, val: np.ndarray) -> dict[str, Any]:
    """The facts on how well an n-gram model of `train` predicts `val`, without labels, and on what copying adds."""
    probability = _ngram_model(corpus, train, val)
    order = len(val) - len(probability)
    counted = np.ones(len(val), bool) if corpus.marks is None else corpus.marks.counted(val)
    part = sample(np.arange(len(probability)), COPIED_SAMPLE)
    return {
        "ngram_order": order,
        "ngram_loss": float(-np.log(probability[counted[order:]] if counted[order:].any() else probability).mean()),
        "copying": copying(val[order:][part], probability[part], window=COPIED_WINDOW),
    }


def _split_losses(corpus: EncodedText) -> dict[str, Any]:
    """The loss of an n-gram model on the validation split, that on as much text that is spread over the training split and left
    out of what it counts, and the standard error of their difference; nats per character."""
    train, val = sample(corpus.train, SPLIT_SAMPLE), sample(corpus.val, SPLIT_VAL_SAMPLE)
    size = min(len(val), len(train) // 4) // PIECES
    if size <= HIGHEST_ORDER:
        return {"own_loss": 0.0, "spread_loss": 0.0, "split_error": math.inf}
    places = sample(np.arange(len(train)), size * PIECES)
    train, both = np.delete(train, places), np.append(val, train[places])
    loss = -np.log(_ngram_model(corpus, train, both))
    own, spread = loss[: len(loss) - len(places)], loss[len(val) :]
    errors = [np.var([piece.mean() for piece in np.array_split(one, PIECES)], ddof=1) / PIECES for one in (own, spread)]
    return {"own_loss": float(own.mean()), "spread_loss": float(spread.mean()), "split_error": math.sqrt(sum(errors))}


def _ngram_model(corpus: EncodedText, train: np.ndarray, val: np.ndarray) -> np.ndarray:
    """`ngram_probabilities` of a model that knows the characters that occur, and no others."""
    number = np.cumsum(corpus.counts > 0) - 1
    return ngram_probabilities(number[train], number[val], vocab_size=int(number[-1]) + 1)


def copying(ids: np.ndarray, probability: np.ndarray, *, window: int) -> float:
    """The loss on `ids` of a model that also copies, divided by that of the model that gives them `probability`; at most 1.
    What is copied is the id after the longest match in the last `window` ids, by a chance that its length gives."""
    without = np.log(probability).sum()
    if not without:
        return 1.0
    length, hit = _longest_matches(ids, window=window)
    times = np.bincount(length, minlength=LONGEST_COPY + 1) + 1
    share = np.where(np.arange(LONGEST_COPY + 1) < SHORTEST_COPY, 0.0, 0.5)  # of copying, for each length of a match
    for _ in range(ROUNDS):
        copies = share[length] * hit
        share = np.bincount(length, copies / (copies + (1 - share[length]) * probability), minlength=len(share)) / times
    # The shares are near the best ones.
    return min(1.0, float(np.log(share[length] * hit + (1 - share[length]) * probability).sum() / without))


def _longest_matches(ids: np.ndarray, *, window: int) -> tuple[np.ndarray, np.ndarray]:
    """For each place, how many of the ids before it (LONGEST_COPY or fewer) equal those before another one, up to `window` ids
    back, and whether the same id is at both: of the longest such match, and of the nearest of several."""
    length, following = np.zeros(len(ids), np.int64), np.zeros_like(ids)
    for distance in range(min(window, len(ids) - 1), 0, -1):
        equal = ids[distance:-1] == ids[: -distance - 1]
        place = np.arange(len(equal))
        matching = place - np.maximum.accumulate(np.where(equal, -1, place))  # ids up to each place
        better = np.flatnonzero(matching >= np.maximum(length[distance + 1 :], 1))
        length[better + distance + 1] = matching[better]
        following[better + distance + 1] = ids[better + 1]
    return np.minimum(length, LONGEST_COPY), following == ids


def ngram_probabilities(train: np.ndarray, val: np.ndarray, *, vocab_size: int, order: int = HIGHEST_ORDER) -> np.ndarray:
    """The probability of each id of `val` but the first `order` ones, by how often it follows those before it in `train`.
    Shorter contexts are interpolated, with a weight that depends on how many different ids followed the context (Witten and
    Bell 1991). The order is lower for a large vocabulary (vocab_size ** (order + 1) < 2^63) and for a few ids."""
    order = min(order if vocab_size ** (order + 1) < 2**63 else 2, len(train) - 1, len(val) - 1)
    seen, counts = np.unique(grams(train, order + 1, vocab_size), return_counts=True)
    wanted, probability = grams(val, order + 1, vocab_size), np.full(len(val) - order, 1 / vocab_size)
    for base in (vocab_size ** (length + 1) for length in range(order + 1)):
        probability = _interpolated(seen % base, counts, wanted % base, probability, vocab_size=vocab_size)
    return probability


def _interpolated(
    seen: np.ndarray, counts: np.ndarray, wanted: np.ndarray, probability: np.ndarray, *, vocab_size: int
) -> np.ndarray:
    """The probability of the last id of each n-gram of `wanted` where those of `seen` occur `counts` times; `probability` is
    what shorter contexts say. Grams with the same context are adjacent, since they are sorted."""
    seen, index = np.unique(seen, return_inverse=True)
    counts = np.bincount(index, weights=counts)
    contexts, index = np.unique(seen // vocab_size, return_index=True)  # and where each begins
    followed = np.stack([np.add.reduceat(counts, index), np.diff(index, append=len(seen))])  # how often, by how many ids
    times, kinds = _lookup(contexts, followed, wanted // vocab_size)
    return np.where(times, (_lookup(seen, counts, wanted) + kinds * probability) / np.maximum(times + kinds, 1), probability)


def _lookup(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The value, or values, of each wanted key, 0 for a key that is missing; `keys` ascend."""
    index = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    return np.where(keys[index] == wanted, values[..., index], 0)


def grams(ids: np.ndarray, length: int, vocab_size: int) -> np.ndarray:
    """Every sequence of `length` ids as a number in base vocab_size, int64, the last id as its last digit."""
    number = np.zeros(len(ids) - length + 1, np.int64)
    for i in range(length):
        number = number * vocab_size + ids[i : len(ids) - length + 1 + i]
    return number
