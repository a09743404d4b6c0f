"""The models of a run: one, or several of which the last learns from the others as well as from the text.

A model that memorises its text has something to teach. This is measured at the peak of its rate: later it could not go on.
"""

import dataclasses

import numpy as np

from chargpt.config import Config
from chargpt.interrupt import Interrupt
from chargpt.notices import Kind, Notice
from chargpt.planning.law import STUDENT_GAP
from chargpt.runs.stage import Length, Models, Stage
from chargpt.text.corpus import Corpus
from chargpt.training.evaluation import validation_split
from chargpt.training.learning_rate import decay_start
from chargpt.training.trainer import Trainer

# The decision comes after this share of the steps before the decay, and after this share of the run.
BEFORE_DECAY, EARLIEST = 0.9, 0.2
STRETCHES = 8  # stretches of the training split, spread over it, on which the loss is measured


def decision_step(config: Config, length: Length) -> float:
    """The step at which to decide: the model has learned much, and the rate has not begun to fall."""
    return max(BEFORE_DECAY * decay_start(config.optim, length), EARLIEST * length.steps, length.warmup)


def measure(trainer: Trainer, corpus: Corpus, interrupt: Interrupt) -> tuple[float, float] | None:
    """The losses of the model as it is on equal amounts of training and validation text; None if a signal came."""
    split, ids = validation_split(corpus.evaluation_ids, trainer.config.train.eval_chars), corpus.train
    if corpus.marks is not None:  # items are mixed, so the first ones are from everywhere; a stretch would begin inside one
        texts = [ids[: len(split)]]
    else:
        each = max(2, min(len(ids), len(split)) // STRETCHES)
        texts = [ids[start : start + each] for start in np.linspace(0, len(ids) - each, STRETCHES).astype(int)]
    *training, validation = (trainer.evaluate(part, marks=corpus.marks, interrupt=interrupt) for part in [*texts, split])
    known = [losses[0] for losses in training if losses is not None]
    if validation is None or len(known) < len(training):
        return None
    return sum(known) / len(known), validation[0]


def decide(training: float, validation: float, planned: Models) -> tuple[Models, Notice]:
    """The models of a run that has measured these losses, and what to say. If a loss is NaN, the others are trained too."""
    measured = f"its training text (loss {training:.2f} there, {validation:.2f} on validation text)"
    if not validation - training < STUDENT_GAP:
        why = f"this model begins to memorise {measured}, so the last one will learn from the predictions of each before it"
        return dataclasses.replace(planned, is_decided=True, why=why), Notice(Kind.MODELS, f"{planned.count}: {why}")
    why = f"this model does not memorise {measured}, so more models would not help"
    return Models(why=why), Notice(Kind.MODELS, f"one: {why}")


def describe_stage(stage: Stage, seed: int) -> list[Notice]:
    """Which model of a run begins or continues, with its seed, and from which it learns; nothing for the only one."""
    follows = "; the last model will learn from the predictions of this one"
    learns = ", learns from the text and from the predictions of each before it" if stage.is_last else follows
    return [Notice(Kind.STAGE, f"{stage.name}, with seed {seed}{learns}")] * stage.is_one_of_several
