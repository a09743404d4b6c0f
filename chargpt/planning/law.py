"""The law that chooses a run's settings: the loss to expect of a model of some size after this many characters of a text.

docs/lab/choice.md has the experiments to which it was fitted, and tests/benchmarks/recipes.py repeats them. The form follows
Hoffmann et al. 2022 (arXiv 2203.15556), with the characters of repeated epochs counted as in Muennighoff et al. 2023 (arXiv
2305.16264). Losses are in nats per character. A constant that is "fitted" comes from that program; the others come from
comparisons on that page, unless their comment names a source.

The law:

    loss = ngram * short * (FLOOR + SIZE (1e5 / n)^SIZE_POWER + SEEN (N / 1e5)^GROWTH (1e6 / d)^SEEN_POWER)

with N parameters in the blocks (n of them are useful) and d useful characters; ngram is the loss of an n-gram model that also
copies, and short is 1 for a long text. A large model learns more slowly: hence GROWTH.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from chargpt.training.optimizers import OPTIMIZERS

# --- The models that are considered ---------------------------------------------------------------------------------------

HEAD_SIZE = 32  # channels of an attention head
# Layers and width, from small to large; each has about two to three times the parameters of the one before.
SHAPES = ((2, 64), (3, 96), (4, 128), (5, 192), (6, 256), (6, 384), (8, 512), (12, 768))
LARGER_SHAPES = tuple((layers, 64 * layers) for layers in (16, 20, 24, 28))  # for a GPU; each has about twice the parameters

# --- The law -------------------------------------------------------------------------------------------------------------

FLOOR = 0.655  # the share of the n-gram loss that no size and no time removes; fitted
SIZE = 0.14  # what a model of 100,000 useful parameters adds to FLOOR because it is small; fitted
SIZE_POWER = 0.33  # the power with which this falls as the parameters grow; fitted
SEEN = 0.157  # what a model of 100,000 parameters adds to FLOOR after a million useful characters; fitted
SEEN_POWER = 0.4  # the power with which this falls as the characters grow; fitted
GROWTH = 0.0416  # the power with which this grows with the parameters; fitted
TEXT_POWER = 0.0432  # the power with which the loss beside that of n-grams falls as a text gets shorter than a million; fitted
REPEATS = 5.4  # epochs after which a further one adds little: R* of Muennighoff et al.; fitted
MAX_USEFUL = 16.4  # useful parameters for each character of the text; fitted
SPREAD = 0.12  # share of the loss by which it may be off, mostly because texts differ
# Characters of a text up to which every optimizer learns as much from a character as Muon, and from which it learns as much
# from one as `OptimizerKind.sees` says; fitted.
SEES_ALL, SEES_LEAST = 10_000, 150_000
# Characters of a text below which the loss is lower than the law says, and the power by which it is; fitted.
SHORT_TEXT, SHORT_POWER = 30_000, 0.05

# --- Regularization ------------------------------------------------------------------------------------------------------

# Weight decay at these values of `repetition`, and between them by its logarithm.
WEIGHT_DECAY = ((10.0, 0.1), (150.0, 0.4), (1500.0, 1.0))
# Dropout at these values of the same. A small model needs none for epochs in which a large one memorises the text.
DROPOUT = ((2000.0, 0.0), (8000.0, 0.2), (130_000.0, 0.3))
SMALL = 100_000  # parameters in the blocks up to which `OptimizerKind.small_dropout` is the highest dropout
RARE = 1000  # occurrences of each character, on average, below which the embedding memorises the text as soon as it repeats
RARE_EPOCHS = (1.0, 1.5)  # the epochs at which this begins, and at which it is complete
RARE_DECAY = 0.5  # weight decay of such a text then, at least
# Distinct characters above which, if most are rare, the embedding has many parameters, and how many times the parameters then
# count for dropout, because this happens much sooner.
LARGE_VOCABULARY, EMBEDDING_MEMORISES = 1000, 100

# --- Several models: the last one learns from those before it --------------------------------------------------------------

# Epochs of one model from which two models in the same time reach a lower loss; and the same if the validation split is a
# harder kind of text: what a run memorises is of less use there.
TWO_MODELS_FROM, TWO_MODELS_FROM_HARDER = 16, 6
ENOUGH_EPOCHS = 30  # epochs of each of two or more runs, at most
# A model that sees a text of up to so many characters so often ends with the mean of its weights over this last part of the
# run. With a million characters and ten epochs, the mean is worse.
AVERAGED_UP_TO, AVERAGED_FROM, AVERAGED = 100_000, 8, 0.3
# How many runs teach the last one if there is time for so many, since more gain little, and what they bring it to, as a share
# of what one does; and how many still gain a little, for whoever has more time than all models need.
SEVERAL_TEACHERS, SEVERAL_SHARE, MORE_TEACHERS = 3, 0.98, 6
STUDENT_SEES = 0.5  # the student's characters, as a share of those that one run would see
STUDENT_DECAY = 0.5  # the highest weight decay of a student, which memorises the text late, and needs no dropout
# Nats by which the loss on training text must be lower than on validation text for a second model, at the peak of the rate.
# A model that memorises nothing has nothing to teach. The rate hides most of it: 0.04 became 0.20 at the end of the run.
STUDENT_GAP = 0.02

MEMORISES = DROPOUT[0][0]  # `repetition` with which a run memorises its text, so that dropout helps

# --- Length, batch, rate and context -------------------------------------------------------------------------------------

MAX_EPOCHS = 60  # epochs after which more do not lower the loss
# Steps of a run, about: fewer and larger ones learn less from the same characters, more and smaller ones take more time. A run
# has MIN_STEPS, however short its text.
STEPS, MIN_STEPS = 1200, 10
LEAST_IN_STEP = 512  # characters in a step, at least: with fewer, the calls of a step take most of its time
# Characters in a step, at most, on a CPU. A GPU gets more (GROWS) while STEPS remain, and EPOCH_STEPS of each epoch: with fewer
# steps, a model may memorise its text (docs/lab/choice.md, "Larger steps").
MOST_IN_STEP, EPOCH_STEPS = 2048, 200
GROWS = 4 / 3  # a GPU gets twice as many characters in a step while that takes less than this many times as long
MOST_IN_STEP_MEDIUM, MEDIUM = 4096, 5e6  # the most for a model of this many parameters in the blocks
IN_STEP_MULTIPLE = 256  # the characters in a step are a multiple of this
MOMENTUM, MOMENTUM_LARGE, LARGE = 0.9, 0.95, 1e7  # Muon's, and that of this many parameters in the blocks or more
# A step multiplies the weights by 1 - rate * decay, so 1 / (rate * decay) steps are their timescale (Wang & Aitchison 2024,
# arXiv 2405.13698). A run takes at most this many timescales at its highest rate.
MAX_TIMESCALES = 10
# The limit on the rate that follows is never below this, so it does not affect AdamW and large models, whose rates are lower.
LOWEST_LIMIT = 4e-3
SHORT_CONTEXT, NARROW = 128, 128  # characters of context of a model of up to this width; above, it is doubled
MUCH_SEEN = 5e6  # nats (useful characters times their entropy): with this many or more, the context is doubled, too
# Factor of `Text.copying` below which it is doubled, too, from this many training characters on: such a text, a log for
# example, repeats what was said a line before.
COPIES, COPIES_FROM = 0.9, 100_000


class Text(NamedTuple):
    """The features of a text that the law uses."""

    characters: int  # of the training split
    entropy: float  # of its characters, nats: the loss of a model that knows their frequencies alone
    ngram_loss: float  # of an n-gram model that has counted the training split, on the validation split: nats per character
    vocabulary: int = 1  # distinct characters
    copying: float = 1.0  # factor on the n-gram loss if the model also copies from the last characters
    is_split_harder: bool = False  # whether the validation split is a harder kind of text than the training split


class Recipe(NamedTuple):
    """What a training of some length needs besides a model."""

    weight_decay: float
    dropout: float
    learning_rate: float
    momentum: float
    characters_per_step: int


def expected_loss(text: Text, *, parameters: int, seen: float, optimizer: str) -> float:
    """The validation loss, nats per character, of a model with `parameters` in its blocks that has seen `seen` characters."""
    kind = OPTIMIZERS[optimizer]
    counted = min(parameters, kind.useful_parameters * text.characters)
    size = 1 / (1 / counted + 1 / (MAX_USEFUL * text.characters))
    is_long = math.log(text.characters / SEES_ALL) / math.log(SEES_LEAST / SEES_ALL)
    useful = max(effective_characters(text, seen), 1.0) * kind.sees ** min(1.0, max(0.0, is_long))
    learned = SEEN * (parameters / 1e5) ** GROWTH * (1e6 / useful) ** SEEN_POWER
    ratio = FLOOR + SIZE * (1e5 / size) ** SIZE_POWER + learned
    ngram = text.ngram_loss * text.copying
    short = min(1.0, text.characters / 1e6) ** TEXT_POWER * min(1.0, text.characters / SHORT_TEXT) ** SHORT_POWER
    return min(ngram * short * ratio, text.entropy)


def effective_characters(text: Text, seen: float) -> float:
    """How many characters of new text teach as much as `seen` characters of this one, which repeats itself."""
    epochs = seen / text.characters
    if epochs <= 1:
        return seen
    return text.characters * (1 + REPEATS * (1 - math.exp(-(epochs - 1) / REPEATS)))


def recipe_for(text: Text, *, parameters: int, seen: float, optimizer: str, most: int = 0) -> Recipe:
    """The training of a model with `parameters` in its blocks that sees `seen` characters, `most` in a step (0: of a CPU)."""
    decay, dropout = regularization(text, parameters=parameters, seen=seen, optimizer=optimizer)
    momentum = MOMENTUM if parameters < LARGE else MOMENTUM_LARGE
    most = most or most_in_step(parameters)
    characters = min(most, max(LEAST_IN_STEP, IN_STEP_MULTIPLE * round(seen / STEPS / IN_STEP_MULTIPLE)))
    highest = max(LOWEST_LIMIT, MAX_TIMESCALES / (decay * max(1, seen / characters)))
    rate = min(highest, next(rate for size, rate in OPTIMIZERS[optimizer].rates if parameters <= size))
    return Recipe(decay, dropout, float(f"{rate:.2g}"), momentum, characters_per_step=characters)


def most_in_step(parameters: int) -> int:
    """Characters in a step, at most, on a CPU, for a model with so many `parameters` in its blocks."""
    return MOST_IN_STEP if parameters < MEDIUM else MOST_IN_STEP_MEDIUM


def regularization(text: Text, *, parameters: int, seen: float, optimizer: str = "muon") -> tuple[float, float]:
    """Weight decay and dropout for a model with `parameters` in its blocks that sees `seen` characters."""
    epochs = seen / text.characters
    repeated_parameters = repetition(text, parameters=parameters, seen=seen)
    decay, dropping = _interpolated(WEIGHT_DECAY, repeated_parameters), repeated_parameters
    if text.characters < RARE * text.vocabulary:
        first, full = RARE_EPOCHS
        memorised = min(1.0, max(0.0, (epochs - first) / (full - first)))
        decay = max(decay, WEIGHT_DECAY[0][1] ** (1 - memorised) * RARE_DECAY**memorised)
        if text.vocabulary > LARGE_VOCABULARY:
            dropping *= EMBEDDING_MEMORISES**memorised
    decay = float(f"{decay:.2g}")
    dropout = round(_interpolated(DROPOUT, dropping), 2)
    return decay, min(dropout, OPTIMIZERS[optimizer].small_dropout) if parameters <= SMALL else dropout


def repetition(text: Text, *, parameters: int, seen: float) -> float:
    """How much a model memorises of a text of which it sees `seen` characters: epochs^2 times parameters for each character."""
    return (seen / text.characters) ** 2 * parameters / text.characters


def _interpolated(points: Sequence[tuple[float, float]], at: float) -> float:
    """The value at a number above 0, between those of the two `points` next to it, by its logarithm; at the ends, theirs."""
    numbers, values = zip(*points)
    return float(np.interp(math.log(max(at, numbers[0])), np.log(numbers), values))


def context_for(text: Text, *, n_embd: int, seen: float, optimizer: str) -> int:
    """The context of a model of width `n_embd` that sees `seen` characters: one that learns little makes no use of a long one,
    unless the text repeats what it said shortly before.

    A character of a large vocabulary, such as a Chinese one, says more about those that follow. With learned positions, every
    place of a longer context would have a position to learn.
    """
    kind = OPTIMIZERS[optimizer]
    for most, context in kind.short_contexts:
        if text.characters <= most:
            return context
    by_text = not kind.is_context_by_width
    learns_much = n_embd > NARROW or (by_text and effective_characters(text, seen) * text.entropy > MUCH_SEEN)
    is_long = learns_much or (by_text and text.copying < COPIES and text.characters >= COPIES_FROM)
    return SHORT_CONTEXT * (2 if is_long else 1) * (2 if by_text and text.vocabulary > LARGE_VOCABULARY else 1)
