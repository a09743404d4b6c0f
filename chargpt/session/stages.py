"""The models of a run: one, or several of which the last learns from the others as well as from the text.

A model that memorises its text has something to teach. Whether it does is measured while its rate is still at its peak: a
model whose rate has fallen cannot go on.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from chargpt.config import Config
from chargpt.interrupt import Interrupt
from chargpt.planning.law import ENOUGH_EPOCHS, MAX_EPOCHS
from chargpt.planning.teachers import models_in_all
from chargpt.terminal import Notice
from chargpt.text.corpus import Corpus
from chargpt.training.evaluation import validation_split
from chargpt.training.learning_rate import decay_start
from chargpt.training.trainer import Trainer

# The decision comes after this share of the steps before the decay,
BEFORE_DECAY = 0.9
# and after this share of the run, also if its rate falls from the beginning.
EARLIEST = 0.2
# Stretches of the training split, spread over it, on which the loss is measured.
STRETCHES = 8


class Losses(NamedTuple):
    """Losses on equal amounts of text, in nats per character."""

    training: float
    validation: float


def is_undecided(config: Config) -> bool:
    """Whether others follow depends on what the first model will measure."""
    return config.train.teachers > 0 and config.train.student_gap > 0


def decision_step(config: Config) -> float:
    """The step at which to decide: the model has learned much, and the rate has not begun to fall."""
    max_steps = config.train.max_steps
    warmup = min(config.optim.warmup_steps, max_steps // 2)
    return max(BEFORE_DECAY * decay_start(config.optim, max_steps=max_steps), EARLIEST * max_steps, warmup)


def measure(trainer: Trainer, corpus: Corpus, interrupt: Interrupt) -> Losses | None:
    """The losses of the model as it is; None if a signal came."""
    split = validation_split(corpus.judged, trainer.config.train.eval_chars)
    # Items are mixed, so the first ones are from everywhere; a stretch would begin inside one.
    texts = _stretches(corpus.train, len(split)) if corpus.marks is None else [corpus.train[: len(split)]]
    texts.append(split)
    *training, validation = (trainer.evaluate(ids, marks=corpus.marks, interrupt=interrupt) for ids in texts)
    known = [loss for loss in training if loss is not None]
    if validation is None or len(known) < len(training):
        return None
    return Losses(sum(known) / len(known), validation)


def _stretches(ids: np.ndarray, length: int) -> list[np.ndarray]:
    """Stretches of `ids`, spread evenly from its beginning to its end, which are about `length` long together."""
    each = max(2, min(len(ids), length) // STRETCHES)
    starts = np.linspace(0, len(ids) - each, STRETCHES).astype(int)
    return [ids[start : start + each] for start in starts]


def memorises(losses: Losses, config: Config) -> bool:
    """Whether the loss on training text is so much lower that others follow; also if a loss is not a number."""
    return not losses.validation - losses.training < config.train.student_gap


def decided(losses: Losses, config: Config) -> Config:
    """The settings of a run that has measured: with teachers, or of one model that trains as long as one may."""
    train = dataclasses.replace(config.train, student_gap=0.0)
    if not memorises(losses, config):
        epochs = MAX_EPOCHS if train.max_epochs == ENOUGH_EPOCHS else train.max_epochs  # others were given
        train = dataclasses.replace(train, teachers=0, teacher_minutes=0.0, max_epochs=epochs)
    return dataclasses.replace(config, train=train)


def describe_decision(losses: Losses, config: Config) -> Notice:
    """What was measured with the settings `config`, and the decision."""
    measured = f"the loss is {losses.training:.2f} on training text and {losses.validation:.2f} on validation text"
    if memorises(losses, config):
        what = f"{measured}: this model begins to memorise the text, so the last one will learn from it too"
        return Notice(models_in_all(config.train.teachers), what)
    return Notice("one model", f"{measured}: this model does not memorise the text, so it trains alone")


def name_of_stage(config: Config, stage: int) -> str:
    """Which model of a run this is: `model 2 of 4`; empty for the only one, and while that is not decided."""
    several = config.train.teachers > 0 and not config.train.student_gap
    return f"model {stage} of {config.train.teachers + 1}" if several else ""


def describe_stage(config: Config, stage: int) -> list[Notice]:
    """Which model of a run begins or continues, and how it differs from the others; nothing for the only one."""
    name, teachers = name_of_stage(config, stage), config.train.teachers
    if not name:
        return []
    if stage <= teachers:
        return [Notice("stage", f"{name}, with seed {config.train.seed}; the final model will learn from it")]
    whom = "the one before it" if teachers == 1 else f"the {teachers} before it"
    own = f"weight decay {config.optim.weight_decay:g}, dropout {config.model.dropout:g} and seed {config.train.seed}"
    return [Notice("stage", f"{name} learns from {whom} as well as from the text, with {own}")]
