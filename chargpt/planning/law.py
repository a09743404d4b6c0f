"""The law that chooses a run's settings: the loss to expect of a model of some size after so many characters of a text.

docs/lab/choice.md has the experiments to which it was fitted, and tests/benchmarks/recipes.py repeats them. The form follows
Hoffmann et al. 2022 (arXiv 2203.15556), with the characters of repeated epochs counted as in Muennighoff et al. 2023 (arXiv
2305.16264).
"""

import math
from typing import NamedTuple

from chargpt.training.optimizers import OPTIMIZERS, OptimizerKind

HEAD_SIZE = 32  # channels of an attention head
SHAPES = ((2, 64), (3, 96), (4, 128), (5, 192), (6, 256), (6, 384), (8, 512), (12, 768))  # layers and width of the models


class Text(NamedTuple):
    """What the law knows of a text."""

    characters: int  # of the training part
    entropy: float  # of its characters, nats: the loss of a model that knows their frequencies alone
    mark: float  # loss of an n-gram model that has counted the training part, on the validation part: nats per character
    vocabulary: int = 1  # distinct characters
    copying: float = 1.0  # how much lower the mark is if the n-gram model also copies from the last characters


class Recipe(NamedTuple):
    """What a training of some length needs besides a model."""

    weight_decay: float
    dropout: float
    learning_rate: float
    momentum: float
    characters_per_step: int


# The loss is that of an n-gram model that also copies, times FLOOR + SIZE (1e5 / n)^SIZE_POWER + SEEN (N / 1e5)^GROWTH
# (1e6 / d)^SEEN_POWER, with N parameters in the blocks, of which n are useful, and d useful characters: a large model learns
# more slowly. All of this times (t / 1e6)^TEXT_POWER if the text has fewer than a million characters: of a short text, a
# network learns more than n-grams do.
FLOOR, SIZE, SIZE_POWER, SEEN, SEEN_POWER, GROWTH, TEXT_POWER = 0.655, 0.14, 0.33, 0.157, 0.4, 0.0416, 0.0432
REPEATS = 5.4  # epochs after which a further one adds little: R* of Muennighoff et al.
MAX_USEFUL = 16.4  # useful parameters for each character of the text
# Of SEES_ALL characters or fewer, every optimizer learns as much from a character as Muon; of more, a share that falls to the
# optimizer's own, `OptimizerKind.sees`, at SEES_LEAST.
SEES_ALL, SEES_LEAST = 10_000, 150_000
# Below SHORT_TEXT characters, the loss is lower than the law says, by this power.
SHORT_TEXT, SHORT_POWER = 30_000, 0.05
SPREAD = 0.12  # of the expected loss: how far it may be off, mostly because texts differ
# Of a short text, a model of any size learns about a share of what the n-gram model knows beyond the frequencies of
# characters: `OptimizerKind.learned`, or TWO_RUNS_LEARN. The law, which compares sizes, then counts LAW_SHARE. All of this is
# for up to LAW_FROM characters; from LAW_ALONE on, only the law counts. The expected loss of a short text may be off by more.
TWO_RUNS, TWO_RUNS_LEARN = "two runs", 1.0
LAW_FROM, LAW_ALONE, LAW_SHARE = 20_000, 40_000, 0.25
SHORT_SPREAD = 0.15

WEIGHT_DECAY = ((3, 0.1), (10, 0.5), (math.inf, 1.0))  # up to so many epochs
# A text that has each of its characters fewer times than this, on average, is memorised from the second epoch on, by the
# embedding: then the decay is that of RARE_EPOCHS epochs, at least.
RARE, RARE_EPOCHS = 1000, 4
# Up to so many epochs^2 times parameters for each character. A small model needs no dropout for epochs in which a large one
# memorises the text.
DROPOUT = ((3000, 0.0), (7000, 0.1), (50_000, 0.2), (math.inf, 0.3))
# With more distinct characters than this, most of them rare, the embedding memorises the text too, and much sooner: then the
# parameters count EMBEDDING_MEMORISES times.
LARGE_VOCABULARY, EMBEDDING_MEMORISES = 1000, 100
# A model that learns from teachers memorises the text late: it needs no dropout, and no more weight decay than this.
TAUGHT_DECAY = 0.5
# In a time in which a model would see its text so often, two runs of it give more, each of about ENOUGH_EPOCHS epochs at most:
# the second one learns from the first. TEACHER_SHARE of the time is for the first; the second sees PUPIL_SEES of the characters
# that one run would see.
TEACHING_EPOCHS, ENOUGH_EPOCHS, TEACHER_SHARE, PUPIL_SEES = 16, 30, 1 / 3, 0.5
MAX_EPOCHS = 60  # more do not lower the loss
# Nats by which the loss on training text must be lower than on validation text for a second run, while the rate is at its peak.
# A model that memorises nothing has nothing to teach. The rate hides most of it: 0.04 became 0.20 at the end of the run.
SECOND_RUN_GAP = 0.02
STEPS = 1200  # about; fewer and larger ones learn less from the same characters, more and smaller ones take more time
# A step multiplies the weights by 1 - rate * decay, so 1 / (rate * decay) steps are their timescale (Wang & Aitchison 2024,
# arXiv 2405.13698). The rate is limited so that a run takes at most MAX_TIMESCALES at it. The limit is never below
# LOWEST_LIMIT, so it does not affect AdamW and large models, whose rates are lower.
MAX_TIMESCALES, LOWEST_LIMIT = 10, 4e-3
# The context is doubled for wider models or for a run that sees so much, in nats: its useful characters times their entropy.
# It is doubled for a large vocabulary, too.
SHORT_CONTEXT, NARROW, MUCH_SEEN = 128, 128, 5e6
SMALL = 100_000  # parameters in the blocks of a model to which `OptimizerKind.small_dropout` applies
MIN_STEPS = 10  # of a run, however short its text


def expected_loss(text: Text, *, parameters: int, seen: float, optimizer: str) -> float:
    """The validation loss, nats per character, of a model with `parameters` in its blocks that has seen `seen` characters."""
    kind = OPTIMIZERS[optimizer]
    counted = min(parameters, kind.useful_parameters * text.characters)
    size = 1 / (1 / counted + 1 / (MAX_USEFUL * text.characters))
    useful = max(effective_characters(text, seen), 1.0) * _seen_share(text, kind)
    learned = SEEN * (parameters / 1e5) ** GROWTH * (1e6 / useful) ** SEEN_POWER
    ratio = FLOOR + SIZE * (1e5 / size) ** SIZE_POWER + learned
    mark = text.mark * text.copying
    short = min(1.0, text.characters / 1e6) ** TEXT_POWER * min(1.0, text.characters / SHORT_TEXT) ** SHORT_POWER
    return min(mark * short * ratio, text.entropy)


class Expected(NamedTuple):
    """A validation loss to expect, nats per character, and its range."""

    loss: float
    low: float
    high: float


def announced(text: Text, loss: float, *, seen: float, how: str) -> Expected:
    """What to say of a training for which the law expects `loss`. `how` is an optimizer or TWO_RUNS.

    The result grows with `loss`.
    """
    mark, most = text.mark * text.copying, text.characters * (1 + REPEATS)
    known = TWO_RUNS_LEARN if how == TWO_RUNS else OPTIMIZERS[how].learned
    share = known * math.sqrt(min(1.0, effective_characters(text, seen) / most))
    short = max(0.0, text.entropy - share * (text.entropy - mark))
    place = min(1.0, max(0.0, (text.characters - LAW_FROM) / (LAW_ALONE - LAW_FROM)))  # of the text, from short to long
    weight = LAW_SHARE + (1 - LAW_SHARE) * place
    spread = SHORT_SPREAD + (SPREAD - SHORT_SPREAD) * place
    both = min(text.entropy, short ** (1 - weight) * max(0.0, loss) ** weight)
    return Expected(both, both * (1 - spread), both * (1 + spread))


def _seen_share(text: Text, kind: OptimizerKind) -> float:
    """How much of a character of Muon's a character teaches."""
    share = math.log(text.characters / SEES_ALL) / math.log(SEES_LEAST / SEES_ALL)
    return kind.sees ** min(1.0, max(0.0, share))


def effective_characters(text: Text, seen: float) -> float:
    """How many characters of new text teach as much as `seen` characters of this one, which repeats itself."""
    epochs = seen / text.characters
    if epochs <= 1:
        return seen
    return text.characters * (1 + REPEATS * (1 - math.exp(-(epochs - 1) / REPEATS)))


def longest_useful(text: Text) -> float:
    """The characters to see after which more epochs do not lower the loss."""
    return MAX_EPOCHS * text.characters


def recipe_for(text: Text, *, parameters: int, seen: float, optimizer: str, taught: bool = False) -> Recipe:
    """The training of a model with `parameters` in its blocks that sees `seen` characters; `taught` if it has teachers."""
    decay, dropout = regularization(text, parameters=parameters, seen=seen, taught=taught, optimizer=optimizer)
    momentum = 0.9 if parameters < 1e7 else 0.95
    largest = 2048 if parameters < 5e6 else 4096
    characters = min(largest, max(512, 2 ** round(math.log2(max(seen, 1) / STEPS))))
    highest = max(LOWEST_LIMIT, MAX_TIMESCALES / (decay * max(1, seen / characters)))
    rate = min(highest, next(rate for most, rate in OPTIMIZERS[optimizer].rates if parameters <= most))
    return Recipe(decay, dropout, float(f"{rate:.2g}"), momentum, characters_per_step=characters)


def regularization(
    text: Text, *, parameters: int, seen: float, taught: bool = False, optimizer: str = "muon"
) -> tuple[float, float]:
    """Weight decay and dropout for a model with `parameters` in its blocks that sees `seen` characters."""
    epochs = seen / text.characters
    repeated_parameters = epochs**2 * parameters / text.characters
    is_rare = epochs > 1 and text.characters < RARE * text.vocabulary
    if is_rare and text.vocabulary > LARGE_VOCABULARY:
        repeated_parameters *= EMBEDDING_MEMORISES
    decaying = max(epochs, RARE_EPOCHS) if is_rare else epochs
    decay = next(decay for most, decay in WEIGHT_DECAY if decaying <= most)
    if taught:
        return min(decay, TAUGHT_DECAY), 0.0
    dropout = next(dropout for most, dropout in DROPOUT if repeated_parameters <= most)
    return decay, min(dropout, OPTIMIZERS[optimizer].small_dropout) if parameters <= SMALL else dropout


def context_for(text: Text, *, n_embd: int, seen: float, optimizer: str) -> int:
    """The context of a model of width `n_embd` that sees `seen` characters: one that learns little makes no use of a long one.

    A character of a large vocabulary, such as a Chinese one, says more about those that follow. With learned positions, every
    place of a longer context would have a position to learn.
    """
    kind = OPTIMIZERS[optimizer]
    for most, context in kind.short_contexts:
        if text.characters <= most:
            return context
    by_text = not kind.is_context_by_width
    learns_much = n_embd > NARROW or (by_text and effective_characters(text, seen) * text.entropy > MUCH_SEEN)
    return SHORT_CONTEXT * (2 if learns_much else 1) * (2 if by_text and text.vocabulary > LARGE_VOCABULARY else 1)
