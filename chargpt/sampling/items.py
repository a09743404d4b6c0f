"""Items from a model: whole ones, of the label that is asked for, until there are as many as wanted. How they are printed."""

import difflib
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np

from chargpt.errors import UserError, shell_word
from chargpt.runs.load import corpus_in_cache
from chargpt.sampling.options import SampleOptions
from chargpt.sampling.printing import text_of
from chargpt.sampling.random_numbers import RandomNumbers
from chargpt.sampling.text_generator import BATCH, TextGenerator
from chargpt.terminal import escape_controls, json_line, log
from chargpt.text.cache import EncodedText
from chargpt.text.items import TAB, Item, end_in, item_prompt, items_in

if TYPE_CHECKING:
    from chargpt.sampling.loaded_model import LoadedModel

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
    tokenizer, random = generator.tokenizer, RandomNumbers(seed)
    writer = generator.changed(length=wanted.max_length + 1, stop=[end_in(tokenizer)])
    names, shares = list(labels) or [""], np.cumsum(list(labels.values()) or [1]) / max(1, sum(labels.values()))
    prompts = [tokenizer.encode(item_prompt(tokenizer, name, beginning)).tolist() for name in names]
    written, in_a_row = set[str](), 0
    while len(stats.written) < wanted.count and in_a_row < ATTEMPTS:
        size = min(BATCH, wanted.count - len(stats.written) + in_a_row)
        chosen = np.searchsorted(shares, random.uniform(size)).tolist()
        seeds = random.below(2**62, size)
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


# Items that are written if no number is given.
DEFAULT_ITEMS = 10
# Ids of a training text up to which its items are known without --new.
QUICK_TO_READ = 2**24
# Labels that an error lists.
LISTED = 12
# For each reason to refuse an item: the option that asks for it.
OPTIONS = {TOO_LONG: "--max-length", TOO_SHORT: "--min-length", NO_MATCH: "--match"}
NOT_IN_CACHE = "the training text of this run is not in the cache; train.py --resume encodes it again if it is unchanged"


def writes_items(options: SampleOptions, loaded: "LoadedModel") -> bool:
    """Whether these options ask for items. Raises UserError if this run has none."""
    is_list = bool(loaded.config.data.items)
    asked = options.items or options.label is not None or options.new
    if asked and not is_list:
        given = "--items" if options.items else "--label" if options.label is not None else "--new"
        raise UserError(f"{given}: the run {loaded.run} was not trained on items; leave it out, or train with --items")
    of_text = options.sampling.lines or options.samples > 1 or options.sampling.stop or options.unseen
    return is_list and not of_text


def labels_of(options: SampleOptions, loaded: "LoadedModel", corpus: EncodedText | None) -> Mapping[str, int]:
    """The labels to write, and how often each: the one that is given, or those of the training text. Raises UserError."""
    known = {} if corpus is None or corpus.items is None else corpus.items.labels
    if not loaded.config.data.label_fields:
        if options.label is not None:
            raise UserError(f"--label: {options.label!r} given, but the run {loaded.run} has no labels; leave it out")
        return {}
    if options.label is None:
        if not known:
            raise UserError(f"--label: {NOT_IN_CACHE}; give a label")
        return known
    label = loaded.tokenizer.normalizer.apply(" ".join(options.label.split()))
    if known and label not in known:
        close = difflib.get_close_matches(label, known, n=3, cutoff=0.4)
        raise UserError(f"--label: {label!r} given; use one of {_listed(dict.fromkeys([*close, *known]))}")
    if not known:
        log(f"--label: not checked; {NOT_IN_CACHE}")
    return {label: 1}


def _listed(labels: Iterable[str]) -> str:
    """The first LISTED of the labels, as they are typed in a shell, and how many more there are."""
    words = [shell_word(label) for label in labels]
    return ", ".join(words[:LISTED]) + (f" and {len(words) - LISTED:,} more" if len(words) > LISTED else "")


def beginning_of_items(options: SampleOptions, loaded: "LoadedModel", *, root: Path) -> tuple[list[int], list[str]]:
    """With --interactive: the ids before an item, and what ends it. Raises UserError without a label where there are some."""
    corpus = corpus_in_cache(loaded.config, loaded.tokenizer, loaded.fingerprint, root=root)
    labels = labels_of(options, loaded, corpus)
    if len(labels) > 1:
        raise UserError(f"--interactive: completes items of one label; give --label, one of {_listed(labels)}")
    tokenizer = loaded.tokenizer
    return tokenizer.encode(item_prompt(tokenizer, next(iter(labels), ""))).tolist(), [end_in(tokenizer)]


def print_items(
    options: SampleOptions,
    loaded: "LoadedModel",
    generator: TextGenerator,
    *,
    file: TextIO,
    root: Path,
    stop: Callable[[], bool],
) -> None:
    """Write the items that the options ask for to `file`, and a table to standard error. Raises UserError.

    When `stop()` becomes true, no more items are made.
    """
    corpus = corpus_in_cache(loaded.config, loaded.tokenizer, loaded.fingerprint, root=root)
    labels = labels_of(options, loaded, corpus)
    if options.new and corpus is None:
        raise UserError(f"--new: {NOT_IN_CACHE}")
    known = None
    if corpus is not None and (options.new or len(corpus.train) <= QUICK_TO_READ):
        known = frozenset(item.text for item in items_in(corpus.train, corpus.tokenizer, has_labels=bool(labels)))
    wanted = ItemFilter(
        count=options.items or DEFAULT_ITEMS,
        unique=options.sampling.unique,
        new=options.new,
        match=options.match,
        min_length=options.min_length,
        max_length=LONGEST if options.longest_item is None else options.longest_item,
    )
    beginning = loaded.tokenizer.normalizer.apply(options.prompt)
    started, stats = time.perf_counter(), ItemStats()
    for item in write_items(
        generator, wanted, labels=labels, seed=options.sampling.seed or 0, known=known, beginning=beginning, stats=stats
    ):
        if not options.json:
            text = f"{item.label}\t{item.text}" if item.label and options.label is None else item.text
            file.write((escape_controls(text) if file.isatty() else text) + "\n" * (1 + ("\n" in item.text)))
            file.flush()
        if stop():
            break
    seconds, written, refused = time.perf_counter() - started, len(stats.written), stats.refused.most_common()
    if options.json:
        _print_json(loaded, stats.written, known, file)
    why = ", ".join(f"{what} {count:,}" for what, count in refused)
    log(f"written   {written:>7,}  of {wanted.count:,} in {seconds:.1f} s" + (f"; refused: {why}" if why else ""))
    log(f"unique    {stats.unique:>7,}  {stats.unique / max(1, written):6.1%}")
    is_known = known is not None
    log(
        f"new       {stats.new:>7,}  {stats.new / max(1, written):6.1%}" if is_known else f"new       not known: {NOT_IN_CACHE}"
    )
    if written < wanted.count and refused:
        what_to_do = f"change {OPTIONS[refused[0][0]]}, " if refused[0][0] in OPTIONS else ""
        log(f"no more items: {ATTEMPTS:,} in a row were refused; {what_to_do}raise --temperature, or ask for less")


def _print_json(loaded: "LoadedModel", items: Sequence[Item], known: frozenset[str] | None, file: TextIO) -> None:
    """A JSON object for each item, with its log-probability given the label, in nats, before any sampling rule."""
    for item, loss in zip(items, loaded.item_losses(items).tolist()):
        value: dict[str, object] = {"label": item.label} if item.label else {}
        value |= {"item": item.text, "log_probability": round(-loss, 4), "bits": round(loss / math.log(2), 4)}
        value |= {} if known is None else {"new": item.text not in known}
        file.write(json_line(value, file) + "\n")
    file.flush()
