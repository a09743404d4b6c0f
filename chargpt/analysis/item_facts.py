"""What a model makes of items: which label makes one most likely, and what a report says of a run on them.

A label is found by Bayes' rule, with the model's probability of the item and the labels' frequencies.
"""

import itertools
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from chargpt.analysis.ngrams import MOST_LABELS, NgramClassifier
from chargpt.canonical import stored_as
from chargpt.sampling.item_writer import ItemWriter, known_items
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.sampling.options import SamplingOptions
from chargpt.text.corpus import Corpus
from chargpt.text.item_stream import Item, items_in

LABELS, SAMPLES = 8, 5  # labels with samples, and samples of each of them; without labels, all samples are in one list
WRITTEN = 200  # items that are written to see how many are unique and new
LONGEST = 400  # characters of an item that is written at most
SCORED, LISTED = 1000, 8  # validation items that are looked at, and of them the most and the least likely that are listed
MAX_GUESSED = 24  # labels up to which they are guessed
SHARES = (0.35, 0.0, 0.05, 0.1, 0.2, 0.5, 0.7, 1.0)  # of what each of two says of a label; without answers, the first
FEWEST_ANSWERS = 50  # by which shares are chosen; with 20, they were worse than the first one


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """What a model makes of the labels of some items."""

    items: list[Item]
    labels: list[str]
    probability: np.ndarray  # of each label, given the item, (items, labels), float64
    losses: np.ndarray  # of each item, whatever its label, in nats, (items,): minus the logarithm of its probability

    @cached_property
    def best(self) -> list[str]:
        """The most likely label of each item."""
        return [self.labels[number] for number in self.probability.argmax(axis=1).tolist()]

    @cached_property
    def confusion(self) -> Counter[tuple[str, str]]:
        """How often an item of the first label was given the second one; items whose label is not known are left out."""
        known = set(self.labels)
        return Counter((item.label, best) for item, best in zip(self.items, self.best) if item.label in known)

    @property
    def accuracy(self) -> float | None:
        """The share of the items with a known label whose label is the most likely one; None if there is no such item."""
        total = self.confusion.total()
        return sum(count for (label, best), count in self.confusion.items() if label == best) / total if total else None


def guess_labels(loaded: LoadedModel, items: Sequence[Item], counts: Mapping[str, int]) -> Guesses:
    """The labels of `items`, which may have some. `counts` are those of the labels in the list, both splits together.

    A model learns to write, and a naive Bayes classifier on n-grams may tell labels apart better, but is too sure of itself: of
    the logarithm of an item's probability, each of the two has the share that makes the labels of validation items most likely.
    No item takes part in the choice of the shares by which its own label is guessed. docs/lab/items.md has what it is worth.
    """
    labels, held_out = list(counts), _items_of(loaded, "val")[:SCORED]
    places = {text: place for place, text in enumerate(dict.fromkeys(item.text for item in [*held_out, *items]))}
    prior, of_items = np.log(np.array([*counts.values()]) / sum(counts.values())), [places[item.text] for item in items]
    found = _log_likelihoods(loaded, [*places], labels)
    answers = {places[item.text]: labels.index(item.label) for item in held_out}
    sides = [{place: label for place, label in answers.items() if place % 2 == side} for side in (1, 0)]
    shares = np.array([_shares(found, prior, others) for others in sides])[np.arange(len(places)) % 2]
    joint = prior + sum(share[:, None] * one for share, one in zip(shares.T, found))
    losses = -np.logaddexp.reduce(prior + found[0], axis=1)[of_items]
    items = [Item(stored_as(label, labels), text) for label, text in items]
    return Guesses(items=items, labels=labels, probability=_chances(joint)[of_items], losses=losses)


def _items_of(loaded: LoadedModel, split: Literal["train", "val"]) -> list[Item]:
    """The items of a split with their labels; none if the text is gone."""
    corpus = loaded.find_corpus()
    return [] if corpus is None else items_in(getattr(corpus, split), corpus.tokenizer, has_labels=True)


def _log_likelihoods(loaded: LoadedModel, texts: Sequence[str], labels: Sequence[str]) -> list[np.ndarray]:
    """The logarithm of the probability of each text under each label, (texts, labels): by the model, and by n-grams if the
    text of the run is there and has no more labels than they tell apart."""
    losses = [loaded.item_losses([Item(label, text) for text in texts]) for label in labels]
    known = _items_of(loaded, "train") if len(labels) <= MOST_LABELS else []
    by_ngrams = [NgramClassifier(known, labels).log_likelihoods(texts)] if known else []
    return [-np.stack(losses, axis=1), *by_ngrams]


def _shares(found: Sequence[np.ndarray], prior: np.ndarray, answers: Mapping[int, int]) -> tuple[float, ...]:
    """How much of each of the logarithms that were `found` counts, if the `answers`, a label for each of some places, shall be
    most likely."""
    places, labels = [*answers], [*answers.values()]

    def likelihood(shares: tuple[float, ...]) -> float:
        joint = prior + sum(share * one[places] for share, one in zip(shares, found))
        return float(np.log(_chances(joint)[range(len(places)), labels]).sum())

    tried = SHARES if len(places) >= FEWEST_ANSWERS else SHARES[:1]
    return max(itertools.product(tried, repeat=len(found)), key=likelihood)


def _chances(joint: np.ndarray) -> np.ndarray:
    """The probability of each label, given the item, by the logarithms of those of both together, (items, labels)."""
    return np.exp(joint - np.logaddexp.reduce(joint, axis=1)[:, None])


@dataclass(frozen=True, kw_only=True)
class ItemFacts:
    """What was measured. Shares are of the items that were written at temperature 1."""

    samples: list[tuple[str, list[str]]]  # a label, or "", and items
    written: int
    unique: float
    new: float
    scored: int  # validation items
    bits: float  # the mean of an item
    worst: list[tuple[float, Item]]  # the least likely ones, in bits
    best: list[tuple[float, Item]]
    guesses: Guesses | None  # of the labels; None without labels, or with many


def measure_items(loaded: LoadedModel, corpus: Corpus, *, characters: int, seconds: float) -> ItemFacts:
    """A report on a run on items: on about `characters` of the validation items. Writing ends after about `seconds`."""
    assert corpus.items is not None, "a run on items"
    has_labels = bool(corpus.items.labels)
    started, wanted = time.monotonic(), SamplingOptions(items=WRITTEN, max_length=LONGEST, temperature=1.0, seed=0)
    writer = ItemWriter(generator=loaded.text_generator(wanted), wanted=wanted, labels=corpus.items.labels)
    for _ in writer:
        if time.monotonic() - started > seconds:
            break
    by_label: dict[str, list[str]] = {label: [] for label in [*corpus.items.labels][:LABELS] or [""]}
    most = SAMPLES if has_labels else LABELS * SAMPLES
    for item in writer.written:
        if item.label in by_label and len(by_label[item.label]) < most:
            by_label[item.label].append(item.text)
    items = _first(items_in(corpus.val, corpus.tokenizer, has_labels=has_labels)[:SCORED], characters)
    bits = loaded.item_losses(items) / math.log(2)
    order, listed = bits.argsort(kind="stable").tolist(), min(LISTED, len(items) // 2)
    guessed = has_labels and len(corpus.items.labels) <= MAX_GUESSED
    return ItemFacts(
        samples=[(label, texts) for label, texts in by_label.items() if texts],
        written=len(writer.written),
        unique=writer.unique / max(1, len(writer.written)),
        new=writer.new(known_items(corpus)) / max(1, len(writer.written)),
        scored=len(items),
        bits=float(bits.mean()),
        worst=[(float(bits[i]), items[i]) for i in order[::-1][:listed]],
        best=[(float(bits[i]), items[i]) for i in order[:listed]],
        guesses=guess_labels(loaded, items, corpus.items.labels) if guessed else None,
    )


def _first(items: list[Item], characters: int) -> list[Item]:
    """The first of the `items`, as many as have these `characters` together; of a long first one, its beginning."""
    first = Item(items[0].label, items[0].text[:characters])
    ends = itertools.accumulate(len(item.text) for item in items[1:])
    return [first, *(item for item, end in zip(items[1:], ends) if len(first.text) + end <= characters)]
