"""Where the loss of a model sits: by class of character, by position in the context, and which characters it confuses.

characters.py defines the classes of characters.
"""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from chargpt.analysis.characters import CLASSES, characters_of, classes_of, shown_character
from chargpt.errors import UserError
from chargpt.model import GPT
from chargpt.sampling.surprisal import predictions_of
from chargpt.text.item_stream import ItemMarks
from chargpt.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """How a model predicted ids of a text: all but the first; or those of items, without labels. Arrays (N,)."""

    ids: np.ndarray  # (T,): the text
    places: np.ndarray  # where in the text the predicted ids are, ascending
    losses: np.ndarray  # nats, float64
    best: np.ndarray  # the most likely id
    positions: np.ndarray  # how many ids of the context the model read: 1 to block_size
    are_windows: bool = True  # whether the text was read in windows of block_size, one after the other

    @property
    def targets(self) -> np.ndarray:
        """The ids that were predicted, (N,)."""
        return self.ids[self.places]


@dataclass(frozen=True, kw_only=True)
class ClassLoss:
    """The loss of the characters of one class."""

    name: str  # see CLASSES
    characters: int
    share: float  # of all characters
    loss: float  # nats, the mean
    share_of_loss: float
    right: float  # the share whose most likely prediction was right


@dataclass(frozen=True, kw_only=True)
class PositionLoss:
    """The loss of the characters before which the model had read `first` to `last` characters."""

    first: int
    last: int
    characters: int
    loss: float  # nats, the mean
    error: float  # the standard error of the mean


@dataclass(frozen=True, kw_only=True)
class LastDoubling:
    """How much lower the loss is in the second half of the context than in the quarter before it; None if not measured."""

    gain: float | None = None  # nats
    error: float | None = None  # the standard error of the gain


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """A character for which the model's first choice was another one, both as they can be seen."""

    character: str
    prediction: str
    times: int
    share_of_mistakes: float


@dataclass(frozen=True, kw_only=True)
class LossBreakdown:
    """The loss of a text and where it sits."""

    loss: float  # nats per character
    classes: list[ClassLoss]  # the largest share of the loss first
    positions: list[PositionLoss]
    last_doubling: LastDoubling
    confused: list[Confusion]  # the most frequent first

    @property
    def right(self) -> float:
        """The share of the characters whose most likely prediction was right."""
        return sum(row.share * row.right for row in self.classes)


def predict(model: GPT, ids: np.ndarray, marks: ItemMarks | None = None) -> Predictions:
    """The predictions of `model` on ids (T,), in windows of block_size that start without context, as in training.

    With `marks`, of the items in `ids`, each item alone: see `predictions_of`. Raises UserError if all ids are labels.
    """
    places, losses, best, positions = predictions_of(model, ids, marks)
    if not len(places):
        raise UserError("nothing to measure: the text begins with labels, which have no loss; use a larger --chars")
    return Predictions(ids=ids, places=places, losses=losses, best=best, positions=positions, are_windows=marks is None)


def loss_breakdown(predictions: Predictions, tokenizer: Tokenizer, *, block_size: int, most: int) -> LossBreakdown:
    """Where the loss of `predictions` sits; at most `most` confused pairs."""
    return LossBreakdown(
        loss=float(predictions.losses.mean()),
        classes=loss_by_class(predictions, classes_of(characters_of(predictions.ids, tokenizer))[predictions.places]),
        positions=loss_by_position(predictions, block_size),
        last_doubling=last_doubling(predictions, block_size),
        confused=confused_pairs(predictions, tokenizer, most),
    )


def loss_by_class(predictions: Predictions, classes: np.ndarray) -> list[ClassLoss]:
    """The loss of each class that occurs in the text, `classes` (N,); the largest share of the loss first."""
    losses, right = predictions.losses, predictions.best == predictions.targets
    total = losses.sum() or 1.0  # 0 for a vocabulary of one character
    rows = [
        ClassLoss(
            name=name,
            characters=int(chosen.sum()),
            share=float(chosen.mean()),
            loss=float(losses[chosen].mean()),
            share_of_loss=float(losses[chosen].sum() / total),
            right=float(right[chosen].mean()),
        )
        for number, name in enumerate(CLASSES)
        if (chosen := classes == number).any()
    ]
    return sorted(rows, key=lambda row: -row.share_of_loss)


def loss_by_position(predictions: Predictions, block_size: int) -> list[PositionLoss]:
    """The loss by how many characters the model had read: 1, 2, 3 to 4, 5 to 8 and so on."""
    rows, first = [], 1
    while first <= block_size:
        last = min(block_size, 1 if first == 1 else 2 * (first - 1))
        losses = predictions.losses[(predictions.positions >= first) & (predictions.positions <= last)]
        if len(losses):
            mean, error = float(losses.mean()), _standard_error(losses)
            rows.append(PositionLoss(first=first, last=last, characters=len(losses), loss=mean, error=error))
        first = last + 1
    return rows


def last_doubling(predictions: Predictions, block_size: int) -> LastDoubling:
    """What the last doubling of the context gained. Both are compared within each whole window, so that easy and hard passages
    do not matter."""
    whole = len(predictions.losses) // block_size if predictions.are_windows else 0
    windows = predictions.losses[: whole * block_size].reshape(whole, block_size)
    if whole < 2 or block_size < 4:
        return LastDoubling()
    gains = windows[:, block_size // 4 : block_size // 2].mean(axis=1) - windows[:, block_size // 2 :].mean(axis=1)
    return LastDoubling(gain=float(gains.mean()), error=_standard_error(gains))


def confused_pairs(predictions: Predictions, tokenizer: Tokenizer, most: int) -> list[Confusion]:
    """The characters for which the model's first choice was most often a certain other one."""
    wrong = predictions.best != predictions.targets
    pairs = Counter(zip(predictions.targets[wrong].tolist(), predictions.best[wrong].tolist()))
    rows = []
    for pair, times in pairs.most_common(most):
        character, prediction = map(shown_character, characters_of(pair, tokenizer))
        share = times / int(wrong.sum())
        rows.append(Confusion(character=character, prediction=prediction, times=times, share_of_mistakes=share))
    return rows


def _standard_error(values: np.ndarray) -> float:
    return float(values.std() / math.sqrt(len(values)))
