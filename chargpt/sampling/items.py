"""Items from a model: whole ones, of the label that is asked for, until there are as many as wanted."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from chargpt.sampling.printing import text_of
from chargpt.sampling.text_generator import BATCH, TextGenerator
from chargpt.text.items import TAB, Item, end_in, item_prompt

# Items in a row that are refused, after which no more are made.
ATTEMPTS = 1000
# Characters of an item at most, if no length is given.
LONGEST = 1000
# Why an item is refused.
TOO_LONG, TOO_SHORT, NO_MATCH, REPEATED, KNOWN = "longer", "shorter", "no match", "repeated", "in the training text"


@dataclass(frozen=True, kw_only=True)
class ItemFilter:
    """Which items are wanted. The others that the model makes are refused."""

    count: int
    unique: bool = False  # none twice
    new: bool = False  # none of the training text
    match: re.Pattern[str] | None = None  # that occurs in the item
    min_length: int = 0
    max_length: int = LONGEST


@dataclass
class ItemStats:
    """What was made so far."""

    refused: Counter[str] = field(default_factory=Counter)  # why
    written: list[Item] = field(default_factory=list)
    new: int = 0  # of those written; 0 if the training text is not known

    @property
    def unique(self) -> int:
        """How many different items are written."""
        return len({item.text for item in self.written})


def write_items(
    generator: TextGenerator,
    wanted: ItemFilter,
    *,
    labels: Mapping[str, int],
    seed: int,
    known: frozenset[str] | None = None,
    beginning: str = "",
    stats: ItemStats,
) -> Iterator[Item]:
    """The wanted items, counted in `stats`; fewer of them after ATTEMPTS items in a row that were refused.

    The label of each item is drawn by the numbers in `labels`; without any, items have none. `known` are the items of the
    training text, if they are known. `generator` gets its length and its end from here.
    """
    import torch

    tokenizer, random = generator.tokenizer, torch.Generator().manual_seed(seed)
    writer = generator.changed(length=wanted.max_length + 1, stop=[end_in(tokenizer)])
    names, weights = list(labels) or [""], torch.tensor(list(labels.values()) or [1], dtype=torch.float64)
    prompts = [tokenizer.encode(item_prompt(tokenizer, name, beginning)).tolist() for name in names]
    written, in_a_row = set[str](), 0
    while len(stats.written) < wanted.count and in_a_row < ATTEMPTS:
        size = min(BATCH, wanted.count - len(stats.written) + in_a_row)
        chosen = torch.multinomial(weights, size, replacement=True, generator=random).tolist()
        seeds = torch.randint(2**62, (size,), generator=random).tolist()
        for number, characters in zip(chosen, writer.continuations([prompts[number] for number in chosen], seeds)):
            item = Item(names[number], beginning + text_of(characters))
            is_known = known is not None and item.text in known
            if why := _refused(item.text, len(characters), wanted, is_repeated=item.text in written, is_known=is_known):
                stats.refused[why] += 1
                in_a_row += 1
            elif len(stats.written) < wanted.count:
                in_a_row = 0
                written.add(item.text)
                stats.written.append(item)
                stats.new += known is not None and not is_known
                yield item


def _refused(text: str, made: int, wanted: ItemFilter, *, is_repeated: bool, is_known: bool) -> str:
    """Why an item with `made` new characters is refused; empty if it is not."""
    if made > wanted.max_length or len(text) > wanted.max_length:  # the model has not ended it, or later than wanted
        return TOO_LONG
    if not text or len(text) < wanted.min_length:
        return TOO_SHORT
    if wanted.match is not None and not wanted.match.search(text):
        return NO_MATCH
    if wanted.unique and is_repeated:
        return REPEATED
    return KNOWN if wanted.new and is_known else ""


def sampled_items(generator: TextGenerator, labels: Sequence[str], seeds: Sequence[int]) -> list[str]:
    """An item of each of the `labels` (empty: without one), as lines of the stream without their ends; cut if it is long."""
    tokenizer = generator.tokenizer
    prompts = [tokenizer.encode(item_prompt(tokenizer, label)).tolist() for label in labels]
    texts = generator.changed(stop=[end_in(tokenizer)]).continuations(prompts, seeds)
    return [f"{label}{TAB}{text_of(text)}" if label else text_of(text) for label, text in zip(labels, texts)]
