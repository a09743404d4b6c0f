"""Items from a model: whole ones, of the label that is asked for, until there are as many as wanted."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from chargpt.errors import Message, Option
from chargpt.sampling.options import ItemOptions
from chargpt.sampling.random_numbers import RandomNumbers
from chargpt.sampling.stop_rules import text_of
from chargpt.sampling.text_generator import BATCH, TextGenerator
from chargpt.text.items import TAB, Item, end_in, item_prompt, items_in

if TYPE_CHECKING:
    from chargpt.text.corpus import Corpus

# Items in a row that are refused, after which no more are made.
ATTEMPTS = 1000
# Characters of an item at most, if no length is given.
LONGEST = 1000
# Why an item is refused.
TOO_LONG, TOO_SHORT, NO_MATCH, REPEATED, KNOWN = "longer", "shorter", "no match", "repeated", "in the training text"
# For some of these: the option that asks for it.
ASKED_BY = {TOO_LONG: "max_length", TOO_SHORT: "min_length", NO_MATCH: "match"}


@dataclass
class ItemStats:
    """What was made so far."""

    refused: Counter[str] = field(default_factory=Counter)  # why
    written: list[Item] = field(default_factory=list)

    @property
    def unique(self) -> int:
        """How many different items are written."""
        return len({item.text for item in self.written})

    def new(self, known: frozenset[str]) -> int:
        """How many of the items that are written are not among those `known`."""
        return sum(item.text not in known for item in self.written)


def drawn(labels: Mapping[str, int], random: RandomNumbers, count: int) -> tuple[list[str], list[int]]:
    """Labels, drawn by the numbers in `labels` (without any, items have none), and a seed for the item of each."""
    names, shares = list(labels) or [""], np.cumsum(list(labels.values()) or [1]) / max(1, sum(labels.values()))
    chosen = np.searchsorted(shares, random.uniform(count)).tolist()
    return [names[number] for number in chosen], random.below(2**62, count)


def write_items(
    generator: TextGenerator,
    wanted: ItemOptions,
    *,
    labels: Mapping[str, int],
    seed: int,
    known: frozenset[str] = frozenset(),
    beginning: str = "",
    stats: ItemStats,
) -> Iterator[Item]:
    """The wanted items, counted in `stats`; fewer of them after ATTEMPTS items in a row that were refused.

    The label of each item is drawn by the numbers in `labels`. `known` are the items of the training text, if none of those is
    wanted. An item is at most as long as the options say, or the length of the `generator`, which gets its end from here.
    """
    given = generator.options.length if wanted.max_length is None else wanted.max_length
    longest = LONGEST if given is None else given
    generator = generator.changed(length=longest + 1)
    random, written, in_a_row = RandomNumbers(seed), set[str](), 0
    while len(stats.written) < wanted.items and in_a_row < ATTEMPTS:
        names, seeds = drawn(labels, random, min(BATCH, wanted.items - len(stats.written) + in_a_row))
        for label, added in zip(names, continued_items(generator, names, seeds, beginnings=[beginning] * len(names))):
            item = Item(label, beginning + added)
            is_wanted = {
                TOO_LONG: len(added) <= longest and len(item.text) <= longest,  # the model may not have ended it
                TOO_SHORT: len(item.text) >= max(1, wanted.min_length),
                NO_MATCH: wanted.match is None or wanted.match.search(item.text) is not None,
                REPEATED: not wanted.unique or item.text not in written,
                KNOWN: not wanted.new or item.text not in known,
            }
            if why := next((why for why, is_so in is_wanted.items() if not is_so), ""):
                stats.refused[why] += 1
                in_a_row += 1
            elif len(stats.written) < wanted.items:
                in_a_row = 0
                written.add(item.text)
                stats.written.append(item)
                yield item


def continued_items(
    generator: TextGenerator, labels: Sequence[str], seeds: Sequence[int], *, beginnings: Sequence[str] = ()
) -> list[str]:
    """What the model adds to the beginning of an item of each of the `labels` (empty: without one); cut if it is long."""
    tokenizer = generator.tokenizer
    pairs = zip(labels, beginnings or [""] * len(labels))
    prompts = [tokenizer.encode(item_prompt(tokenizer, label, beginning)).tolist() for label, beginning in pairs]
    return [text_of(added) for added in generator.changed(stop=[end_in(tokenizer)]).continuations(prompts, seeds)]


def sampled_items(generator: TextGenerator, labels: Sequence[str], seeds: Sequence[int]) -> list[str]:
    """An item of each of the `labels` (empty: without one), as lines of the stream without their ends; cut if it is long."""
    texts = continued_items(generator, labels, seeds)
    return [f"{label}{TAB}{text}" if label else text for label, text in zip(labels, texts)]


def known_items(corpus: "Corpus") -> frozenset[str]:
    """The items of the training text, without their labels."""
    has_labels = corpus.items is not None and bool(corpus.items.labels)
    return frozenset(item.text for item in items_in(corpus.train, corpus.tokenizer, has_labels=has_labels))


def too_few_items(stats: ItemStats, wanted: ItemOptions) -> Message | None:
    """A line for the user if there are fewer items than wanted; None otherwise."""
    if len(stats.written) >= wanted.items or not stats.refused:
        return None
    most = stats.refused.most_common(1)[0][0]
    change = ("change ", Option(ASKED_BY[most]), ", ") if most in ASKED_BY else ()
    what = f"no more items: {ATTEMPTS:,} in a row were refused; "
    return Message(what, *change, "raise ", Option("temperature"), ", or ask for less")
