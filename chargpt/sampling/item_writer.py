"""Items from a model: whole ones, of the label that is asked for, until there are as many as wanted."""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from chargpt.canonical import canonical
from chargpt.errors import Message, Option, Words
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.rules import RandomNumbers
from chargpt.sampling.stop_rules import text_of
from chargpt.sampling.text_generator import BATCH, TextGenerator
from chargpt.text.item_stream import TAB, Item, end_in, item_prompt, items_in

if TYPE_CHECKING:
    from chargpt.text.corpus import Corpus

ATTEMPTS = 1000  # items in a row that are refused, after which no more are made
# Likewise characters of all refused items: this many, and so many times those of the items that are written. Guesses.
MOST_REFUSED, REFUSED_SHARE = 100_000, 20
ASKED_BY = {"too long": "max_length", "too short": "min_length", "no match": "match"}  # reasons to refuse an item: the option


def draw_labels(labels: Mapping[str, int], random: RandomNumbers, count: int) -> tuple[list[str], list[int]]:
    """Labels, drawn by the numbers in `labels` (without any, items have none), and a seed for the item of each."""
    shares = np.cumsum(list(labels.values()) or [1]) / max(1, sum(labels.values()))
    chosen = np.searchsorted(shares, random.uniform(count)).tolist()
    return [(list(labels) or [""])[number] for number in chosen], random.below(2**62, count)


@dataclass(kw_only=True)
class ItemWriter:
    """Writes items until there are as many as wanted, or too much was refused. Iterate over it once.

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
    _in_a_row: int = 0  # that were refused
    _excess: int = 0  # characters of those that are refused, less REFUSED_SHARE times those of the ones that are written
    _texts: set[str] = field(default_factory=set)  # of those that are written

    def __iter__(self) -> Iterator[Item]:
        from tqdm import tqdm  # no other text needs it

        wanted, random = self.wanted, RandomNumbers(self.wanted.seed or 0)
        generator = self.generator.changed(length=wanted.longest + 1)
        with tqdm(total=wanted.items, unit="item", delay=1, leave=False, disable=not sys.stderr or None) as bar:
            while len(self.written) < wanted.items and self._in_a_row < ATTEMPTS and self._excess < MOST_REFUSED:
                names, seeds = draw_labels(self.labels, random, min(BATCH, wanted.items - len(self.written) + self._in_a_row))
                for label, added in zip(names, _continued(generator, names, seeds, self.beginning)):
                    if self._takes(item := Item(label, self.beginning + added)):
                        bar.clear()
                        yield item
                bar.set_postfix_str(f"rejected: {self.why}" if self.refused else "", refresh=False)
                bar.update(len(self.written) - bar.n)

    def _takes(self, item: Item) -> bool:
        """Whether this item is written: it fits what is wanted, and there are not enough yet."""
        wanted, size = self.wanted, len(item.text)
        match = canonical(wanted.match) if isinstance(wanted.match, str) else wanted.match
        if len(self.written) == wanted.items:
            return False
        misfits = {
            "too long": size > wanted.longest,  # the model may not have ended it
            "too short": size < max(1, wanted.min_length),
            "no match": match is not None and re.search(match, canonical(item.text)) is None,
            "banned word": wanted.bans(item.text),
            "repeated": wanted.unique and item.text in self._texts,
            "in the training text": item.text in self.known,
        }
        if any(misfits.values()):
            self.refused[next(reason for reason, holds in misfits.items() if holds)] += 1
            self._in_a_row += 1
            self._excess += size
            return False
        self._in_a_row = 0
        self._excess -= REFUSED_SHARE * size
        self._texts.add(item.text)
        self.written.append(item)
        return True

    @property
    def why(self) -> str:
        """How many items are refused, and why; empty if none is."""
        return ", ".join(f"{count:,} {what}" for what, count in self.refused.most_common())

    @property
    def unique(self) -> int:
        """How many different items are written."""
        return len(self._texts)

    def new(self, known: frozenset[str]) -> int:
        """How many of the items that are written are not among those `known`."""
        return sum(item.text not in known for item in self.written)

    @property
    def problem(self) -> Message | None:
        """A line for the user if there are fewer items than wanted; None otherwise."""
        if len(self.written) >= self.wanted.items or not self.refused:
            return None
        ((reason, _),) = self.refused.most_common(1)
        change: list[Words] = ["change ", Option(ASKED_BY[reason]), ", "] if reason in ASKED_BY else []
        if reason == "too long" and self.wanted.longest > self.generator.writer.block_size:
            change += ["train with a larger ", Option("model.block_size"), ", "]
        how_many = f"{ATTEMPTS:,} in a row" if self._in_a_row >= ATTEMPTS else f"{self.refused.total():,} in all"
        what = f"no more items, since {how_many} were rejected (mostly: {reason}); "
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
