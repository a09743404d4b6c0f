"""Items in an encoded text: a stream of `label TAB item NEWLINE`, in which each item is found by its ids. If some items hold
newlines, all of them end with SEPARATOR instead. Without labels, there is no label and no tab."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:  # training divides items by their ids alone
    from chargpt.text.tokenizer import Tokenizer

SEPARATOR = "\x1e"  # ends items that hold newlines: the control character RECORD SEPARATOR
TAB = "\t"  # ends a label
MAX_NAMED = 6  # labels that a line for the user counts


@dataclass(frozen=True, kw_only=True)
class ItemCounts:
    """What a list of items holds, both splits together."""

    items: int
    duplicates: int  # items that occur before, with any label
    longest: int  # characters of the longest item
    longest_label: int  # likewise
    labels: dict[str, int] = field(default_factory=dict)  # how many items have each label, most frequent first

    def describe(self) -> str:
        """How many items and labels there are, for a line."""
        repeated = f" ({self.duplicates:,} of them duplicates)" if self.duplicates else ""
        counted = [f"{label} {count:,}" for label, count in self.labels.items()]
        counted = counted[:MAX_NAMED] + ["..."] * (len(counted) > MAX_NAMED)
        labels = f"; {len(self.labels):,} labels: {', '.join(counted)}" if counted else ""
        return f"{self.items:,}{repeated}, the longest has {self.longest:,} characters{labels}"

    def marks(self, tokenizer: "Tokenizer") -> "ItemMarks":
        """The marks of this list in its vocabulary."""
        return ItemMarks.of(tokenizer, has_labels=bool(self.labels))


class Item(NamedTuple):
    """An item as text."""

    label: str  # empty without labels
    text: str


@dataclass(frozen=True)
class ItemMarks:
    """The ids that divide a stream into items."""

    end: int  # after each item
    tab: int | None  # after each label; None without labels

    @classmethod
    def of(cls, tokenizer: "Tokenizer", *, has_labels: bool) -> "ItemMarks":
        """The marks in the vocabulary of a list of items."""
        return cls(int(tokenizer.ids_of(end_in(tokenizer))[0]), int(tokenizer.ids_of(TAB)[0]) if has_labels else None)

    def bounds(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where each item begins, with its label, and where its end is, int64. An incomplete last one counts if it is alone."""
        stops = np.flatnonzero(ids == self.end)
        stops = stops if len(stops) else np.array([len(ids) - 1])
        return np.append(0, stops[:-1] + 1), stops

    def lengths(self, ids: np.ndarray) -> np.ndarray:
        """How many ids each of these items has, with its label and its end, int64."""
        starts, stops = self.bounds(ids)
        return stops + 1 - starts

    def characters_per_item(self, ids: np.ndarray) -> float:
        """The mean number of characters of the complete items in `ids`, with the end of each, without labels; 0 of none."""
        stops = np.flatnonzero(ids == self.end)
        return float(self.counted(ids)[: stops[-1] + 1].sum() / len(stops)) if len(stops) else 0.0

    def counted(self, ids: np.ndarray) -> np.ndarray:
        """Whether each of `ids` is of an item or ends one: False for a label and its tab, bool."""
        if self.tab is None:
            return np.ones(len(ids), bool)
        ends, tabs = np.flatnonzero(ids == self.end), np.append(np.flatnonzero(ids == self.tab), len(ids))
        starts = np.append(0, ends + 1)
        texts = np.minimum(tabs[np.searchsorted(tabs, starts)] + 1, np.append(ends + 1, len(ids)))  # where each text begins
        edges = np.column_stack([starts, texts]).ravel()
        return np.repeat(np.arange(len(edges)) % 2 == 1, np.diff(edges, append=len(ids)))


def end_in(tokenizer: "Tokenizer") -> str:
    """The character that ends an item in the vocabulary of a list of items."""
    return SEPARATOR if SEPARATOR in (tokenizer.characters or "") else "\n"


def item_prompt(tokenizer: "Tokenizer", label: str, beginning: str = "") -> str:
    """What the model continues with an item of this label, empty without labels, that has this `beginning`."""
    return end_in(tokenizer) + (f"{label}{TAB}" if label else "") + beginning


def stream_of(items: Iterable[Item], *, end: str) -> str:
    """The text of `items`, each with its label if it has one and its `end`, as `items_in` reads it."""
    return "".join(f"{item.label}{TAB}{item.text}{end}" if item.label else item.text + end for item in items)


def items_in(ids: np.ndarray, tokenizer: "Tokenizer", *, has_labels: bool) -> list[Item]:
    """The items of a stream, as text; the last one, if it is not complete, is left out."""
    lines = tokenizer.decode(ids).split(end_in(tokenizer))[:-1]
    parts = [line.partition(TAB) for line in lines]
    return [Item(label, text) for label, _, text in parts] if has_labels else [Item("", line) for line in lines]
