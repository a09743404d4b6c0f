"""Which label makes an item most likely: Bayes' rule, with the model's probability of the item and the labels' frequencies."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from chargpt.sampling.loaded_model import LoadedModel
from chargpt.terminal import plural
from chargpt.text.items import Item

# Labels that the table of confusions shows: the most frequent.
SHOWN = 12
# Characters of a label in it.
WIDTH = 12


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
    """The labels of `items`, which may have some. `counts` are those of the labels in the list, both splits together."""
    labels, total = list(counts), sum(counts.values())
    joint = np.empty((len(items), len(labels)))  # the logarithm of the probability of an item and a label together
    for number, label in enumerate(labels):
        losses = loaded.item_losses([Item(label, item.text) for item in items])
        joint[:, number] = math.log(counts[label] / total) - losses
    together = np.logaddexp.reduce(joint, axis=1)
    probability = np.exp(joint - together[:, None])
    return Guesses(items=list(items), labels=labels, probability=probability, losses=-together)


def describe_guesses(guesses: Guesses) -> list[str]:
    """The accuracy, and a table of confusions: a row for each label of the items, a column for each label that was given."""
    confusion, accuracy = guesses.confusion, guesses.accuracy
    if accuracy is None:
        return [f"{plural(len(guesses.items), 'item')}; their labels are not known, so there is no accuracy"]
    items_of = {label: sum(confusion[label, other] for other in guesses.labels) for label in guesses.labels}
    most = max(guesses.labels, key=items_of.__getitem__)
    always = items_of[most] / confusion.total()
    lines = [f"accuracy {accuracy:.1%} of {plural(confusion.total(), 'item')}; {most!r} for all would have {always:.1%}"]
    shown = guesses.labels[:SHOWN]
    lines.append(" " * (WIDTH + 8) + "".join(f"{_short(label):>{WIDTH + 1}}" for label in shown))
    for label in shown:
        cells = "".join(f"{confusion[label, other]:>{WIDTH + 1},}" for other in shown)
        lines.append(f"{_short(label):<{WIDTH}} {confusion[label, label] / max(1, items_of[label]):>6.1%} {cells}")
    if len(guesses.labels) > SHOWN:
        lines.append(f"and {len(guesses.labels) - SHOWN:,} more labels")
    return lines


def _short(label: str) -> str:
    return label if len(label) <= WIDTH else f"{label[: WIDTH - 1]}…"
