"""Items from a model: whole ones, of the label that is asked for, until there are as many as wanted."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from chargpt.canonical import canonical
from chargpt.errors import Message, Option
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.rules import RandomNumbers
from chargpt.sampling.stop_rules import text_of
from chargpt.sampling.text_generator import BATCH, TextGenerator
from chargpt.text.item_stream import TAB, Item, end_in, item_prompt, items_in

if TYPE_CHECKING:
    from chargpt.text.corpus import Corpus

ATTEMPTS = 1000  # items in a row that are refused, after which no more are made
# Why an item is refused, and for some of these the option that asks for it.
REASONS = {"too long": "max_length", "too short": "min_length", "no match": "match", "repeated": "", "in the training text": ""}


def drawn(labels: Mapping[str, int], random: RandomNumbers, count: int) -> tuple[list[str], list[int]]:
    """Labels, drawn by the numbers in `labels` (without any, items have none), and a seed for the item of each."""
    shares = np.cumsum(list(labels.values()) or [1]) / max(1, sum(labels.values()))
    chosen = np.searchsorted(shares, random.uniform(count)).tolist()
    return [(list(labels) or [""])[number] for number in chosen], random.below(2**62, count)


@dataclass(kw_only=True)
class ItemWriter:
    """Writes items until there are as many as wanted, or ATTEMPTS in a row were refused. Iterate over it once.

    The label of each item is drawn by the numbers in `labels`. `known` are the items of the training text, if none of those is
    wanted. The `generator` has the wanted options, but is not `unique`, and gets the length and the end of an item from here.
    """

    generator: TextGenerator
    wanted: SamplingOptions
    labels: Mapping[str, int]
    known: frozenset[str] = frozenset()
    beginning: str = ""  # of each item
    written: list[Item] = field(default_factory=list)  # so far
    refused: Counter[str] = field(default_factory=Counter)  # how many, and why

    def __iter__(self) -> Iterator[Item]:
        wanted, random, in_a_row = self.wanted, RandomNumbers(self.wanted.seed or 0), 0
        longest, texts = wanted.longest, set[str]()
        match = canonical(wanted.match) if isinstance(wanted.match, str) else wanted.match
        generator = self.generator.changed(length=longest + 1)
        while len(self.written) < wanted.items and in_a_row < ATTEMPTS:
            names, seeds = drawn(self.labels, random, min(BATCH, wanted.items - len(self.written) + in_a_row))
            for label, added in zip(names, _continued(generator, names, seeds, self.beginning)):
                item = Item(label, self.beginning + added)
                fits = (
                    len(added) <= longest and len(item.text) <= longest,  # the model may not have ended it
                    len(item.text) >= max(1, wanted.min_length),
                    match is None or re.search(match, canonical(item.text)) is not None,
                    not wanted.unique or item.text not in texts,
                    item.text not in self.known,
                )
                if not all(fits):
                    self.refused[[*REASONS][fits.index(False)]] += 1
                    in_a_row += 1
                elif len(self.written) < wanted.items:
                    in_a_row = 0
                    texts.add(item.text)
                    self.written.append(item)
                    yield item

    @property
    def unique(self) -> int:
        """How many different items are written."""
        return len({item.text for item in self.written})

    def new(self, known: frozenset[str]) -> int:
        """How many of the items that are written are not among those `known`."""
        return sum(item.text not in known for item in self.written)

    @property
    def problem(self) -> Message | None:
        """A line for the user if there are fewer items than wanted; None otherwise."""
        if len(self.written) >= self.wanted.items or not self.refused:
            return None
        ((reason, _),) = self.refused.most_common(1)
        change = ("change ", Option(REASONS[reason]), ", ") if REASONS[reason] else ()
        what = f"no more items, since {ATTEMPTS:,} in a row were thrown away (mostly: {reason}); "
        return Message(what, *change, "raise ", Option("temperature"), ", or ask for less")


def _continued(generator: TextGenerator, labels: Sequence[str], seeds: Sequence[int], beginning: str) -> list[str]:
    """What the model adds to the `beginning` of an item of each of the `labels` (empty: without one); cut if it is long."""
    tokenizer = generator.tokenizer
    prompts = [tokenizer.encode(item_prompt(tokenizer, label, beginning)).tolist() for label in labels]
    written, _ = generator.changed(stop=[end_in(tokenizer)]).continuations(prompts, seeds)
    return list(map(text_of, written))


def sampled_items(generator: TextGenerator, labels: Sequence[str], seeds: Sequence[int]) -> list[str]:
    """An item of each of the `labels` (empty: without one), as lines of the stream without their ends; cut if it is long."""
    texts = _continued(generator, labels, seeds, "")
    return [f"{label}{TAB}{text}" if label else text for label, text in zip(labels, texts)]


def known_items(corpus: "Corpus") -> frozenset[str]:
    """The items of the training text, without their labels."""
    has_labels = corpus.items is not None and bool(corpus.items.labels)
    return frozenset(item.text for item in items_in(corpus.train, corpus.tokenizer, has_labels=has_labels))
