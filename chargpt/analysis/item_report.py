"""What a report says of a run on items: samples of each label, how many are new, and the most and least likely items."""

import math
import time
from dataclasses import dataclass
from itertools import accumulate

from chargpt.analysis.item_labels import Guesses, guess_labels
from chargpt.sampling.items import ItemStats, known_items, write_items
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.sampling.options import WantedItems
from chargpt.text.corpus import Corpus
from chargpt.text.items import Item, items_in

# Labels with samples, and samples of each of them; without labels, all samples are in one list.
LABELS, SAMPLES = 8, 5
# Items that are written to see how many are unique and new.
WRITTEN = 200
# Characters of an item that is written at most.
LONGEST = 400
# Validation items that are looked at, and of them the most and the least likely ones that are listed.
SCORED, LISTED = 1000, 8
# Labels up to which they are guessed.
MAX_GUESSED = 24


@dataclass(frozen=True, kw_only=True)
class ItemReport:
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


def measure_items(loaded: LoadedModel, corpus: Corpus, *, characters: int, seconds: float) -> ItemReport:
    """A report on a run on items: on about `characters` of the validation items. Writing ends after about `seconds`."""
    assert corpus.items is not None, "a run on items"
    has_labels = bool(corpus.items.labels)
    started, stats = time.monotonic(), ItemStats()
    wanted = WantedItems(WRITTEN, max_length=LONGEST, temperature=1.0, seed=0)
    for _ in write_items(loaded.text_generator(wanted.sampling()), wanted, labels=corpus.items.labels, stats=stats):
        if time.monotonic() - started > seconds:
            break
    by_label: dict[str, list[str]] = {label: [] for label in [*corpus.items.labels][:LABELS] or [""]}
    most = SAMPLES if has_labels else LABELS * SAMPLES
    for item in stats.written:
        if item.label in by_label and len(by_label[item.label]) < most:
            by_label[item.label].append(item.text)
    items = _first(items_in(corpus.val, corpus.tokenizer, has_labels=has_labels)[:SCORED], characters)
    bits = loaded.item_losses(items) / math.log(2)
    order, listed = bits.argsort(kind="stable").tolist(), min(LISTED, len(items) // 2)
    guessed = has_labels and len(corpus.items.labels) <= MAX_GUESSED
    return ItemReport(
        samples=[(label, texts) for label, texts in by_label.items() if texts],
        written=len(stats.written),
        unique=stats.unique / max(1, len(stats.written)),
        new=stats.new(known_items(corpus)) / max(1, len(stats.written)),
        scored=len(items),
        bits=float(bits.mean()),
        worst=[(float(bits[i]), items[i]) for i in order[::-1][:listed]],
        best=[(float(bits[i]), items[i]) for i in order[:listed]],
        guesses=guess_labels(loaded, items, corpus.items.labels) if guessed else None,
    )


def _first(items: list[Item], characters: int) -> list[Item]:
    """The first of the `items`, as many as have these `characters` together; of a long first one, its beginning."""
    first = Item(items[0].label, items[0].text[:characters])
    ends = accumulate(len(item.text) for item in items[1:])
    return [first, *(item for item, end in zip(items[1:], ends) if len(first.text) + end <= characters)]
