"""What a text has copied: its longest passages that occur in the training text, and the share of its n-grams that are new."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from chargpt.sampling.item_writer import sampled_items
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.stop_rules import text_of
from chargpt.text.corpus import Corpus
from chargpt.text.item_stream import end_in
from chargpt.text.suffix_array import OVERLAP, SuffixIndex
from chargpt.text.tokenizer import Tokenizer

SIZES = range(2, 33)  # the sizes n of the n-grams
Matches = tuple[np.ndarray, np.ndarray]  # of a text: what `SuffixIndex.longest_matches` finds
ITEMS = 16  # that are written at a time for each sample, at most


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A maximal passage: it occurs verbatim in the training text, and no longer passage contains it."""

    text: int  # which of the texts
    start: int  # where it begins in that text, in ids
    length: int
    place: int  # where it begins in the training text: one place, if there are several
    copies: int  # how often it occurs there
    content: str


class Novelty(NamedTuple):
    """How much of some texts is new to a training text."""

    longest_copy: int  # the length of the longest passage that occurs there
    novel: dict[int, float]  # for each size n, the share of n-grams that do not occur there; sizes without n-grams are absent


@dataclass(frozen=True, kw_only=True)
class Copies:
    """What some texts have copied from a training text, compared with as much of its validation split."""

    texts: list[str]
    passages: list[Passage]
    here: Novelty
    unseen: Novelty


def measure_copies(texts: list[str], corpus: Corpus, index: SuffixIndex, *, most: int) -> Copies:
    """What `texts` have copied from the training text of `corpus`, which the `index` is of; at most `most` passages."""
    ids = [corpus.tokenizer.ids_of(text) for text in texts]
    ids = [np.where(np.isin(text, corpus.tokenizer.never_sampled), -1, text) for text in ids]  # without a folded character
    found, unseen = [index.longest_matches(text) for text in ids], np.asarray(corpus.val[: sum(map(len, ids))])
    passages = longest_passages(ids, found, index, corpus.tokenizer, most=most)
    return Copies(texts=texts, passages=passages, here=novelty(found), unseen=novelty([index.longest_matches(unseen)]))


def novelty(found: Sequence[Matches]) -> Novelty:
    """That of some texts. A passage of more than 65,536 characters may be found in several pieces."""
    novel = {}
    for n in SIZES:
        if grams := [lengths[: len(lengths) - n + 1] < n for lengths, _ in found if len(lengths) >= n]:
            novel[n] = float(np.concatenate(grams).mean())
    return Novelty(max((int(lengths.max(initial=0)) for lengths, _ in found), default=0), novel)


def longest_passages(
    texts: Sequence[np.ndarray], found: Sequence[Matches], index: SuffixIndex, tokenizer: Tokenizer, *, most: int
) -> list[Passage]:
    """The longest passages of `texts`, at most `most`, longest first. None overlaps another by more than half of its length.

    An id of -1 is a character that the training text does not have.
    """
    candidates = []
    for text, (lengths, _) in enumerate(found):
        inside = np.append(False, lengths[:-1] > lengths[1:])  # the passage that begins one id earlier contains it
        candidates += [(-int(lengths[i]), text, int(i)) for i in np.flatnonzero((lengths > 0) & ~inside)]
    covered = [np.zeros(len(text), bool) for text in texts]
    chosen: list[Passage] = []
    for negative, text, start in sorted(candidates):
        length = -negative
        if len(chosen) == most:
            break
        if covered[text][start : start + length].mean() > 0.5:
            continue
        covered[text][start : start + length] = True
        copies = index.count(texts[text][start : start + min(length, OVERLAP)])
        place, content = int(found[text][1][start]), tokenizer.decode(texts[text][start : start + length])
        chosen.append(Passage(text=text, start=start, length=length, place=place, copies=copies, content=content))
    return chosen


def write_samples(
    loaded: LoadedModel,
    labels: Mapping[str, int] | None,
    *,
    seeds: Sequence[int],
    length: int,
    temperature: float = 1.0,
    seconds: float = math.inf,
) -> list[str]:
    """A text of `length` characters for each seed; all are cut short after about `seconds`.

    `labels` are those of a list of items, and their numbers; None for a run on any other text. The texts are then items one
    after the other, with labels, as in the training text. The model makes each of them alone, as it has learned them. An item
    that was begun is ended.
    """
    started, samples = time.monotonic(), [""] * len(seeds)
    generator = loaded.text_generator(SamplingOptions(temperature=temperature, length=length))
    if labels is None:
        for added in generator.write([[]] * len(seeds), list(seeds)):
            samples = [sample + text_of(new) for sample, new in zip(samples, added)]
            if time.monotonic() - started > seconds:
                break
        return samples
    names, counts = [*labels] or [""], np.array([*labels.values()] or [1])
    random, end = [np.random.default_rng(seed) for seed in seeds], end_in(loaded.tokenizer)
    longest = length
    while (short := [i for i, sample in enumerate(samples) if len(sample) < length]) and time.monotonic() - started < seconds:
        count = min(ITEMS, math.ceil((length - min(len(samples[i]) for i in short)) / longest))  # for each sample
        chosen = [names[number] for i in short for number in random[i].choice(len(names), count, p=counts / counts.sum())]
        lines = sampled_items(generator, chosen, [int(seed) for i in short for seed in random[i].integers(2**62, size=count)])
        longest = max(map(len, lines)) + 1
        for number, i in enumerate(short):
            samples[i] += "".join(line + end for line in lines[number * count : (number + 1) * count])
    return [sample[:length] for sample in samples]
