"""The student: a run that learns from the one or several before it, its teachers, as well as from the text.

A run that memorises its text has something to teach. Whether it does is measured while its rate is still at its peak: a run
whose rate has fallen cannot go on.
"""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from chargpt.config import Config
from chargpt.errors import Message, resuming
from chargpt.interrupt import Interrupt
from chargpt.planning.law import ENOUGH_EPOCHS, MAX_EPOCHS
from chargpt.planning.teachers import next_teacher_folder, number_of, problem_of_teachers, runs_in_all, student_folder
from chargpt.runs.checkpoint import has_steps, newest
from chargpt.runs.sealed_json import CheckpointError
from chargpt.terminal import Notice, plural, shown
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
    """Whether a student follows depends on what this run will measure."""
    return config.train.student_minutes > 0 and config.train.student_gap > 0


def decision_step(config: Config) -> float:
    """The step at which to decide: the model has learned much, and the rate has not begun to fall."""
    max_steps = config.train.max_steps
    warmup = min(config.optim.warmup_steps, max_steps // 2)
    return max(BEFORE_DECAY * decay_start(config.optim, max_steps=max_steps), EARLIEST * max_steps, warmup)


def measure(trainer: Trainer, corpus: Corpus, interrupt: Interrupt) -> Losses | None:
    """The losses of the model as it is; None if a signal came."""
    split = validation_split(corpus.val, trainer.config.train.eval_chars)
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
    """Whether the loss on training text is so much lower that a student follows; also if a loss is not a number."""
    return not losses.validation - losses.training < config.train.student_gap


def decided(losses: Losses, config: Config) -> Config:
    """The settings of a run that has measured: with a student, or without one and as long as one run may be."""
    train = dataclasses.replace(config.train, student_gap=0.0)
    if not memorises(losses, config):
        epochs = MAX_EPOCHS if train.max_epochs == ENOUGH_EPOCHS else train.max_epochs  # others were given
        train = dataclasses.replace(train, student_minutes=0.0, student_teachers=1, max_epochs=epochs)
    return dataclasses.replace(config, train=train)


def describe_decision(losses: Losses, config: Config) -> Notice:
    """What was measured with the settings `config`, and the decision."""
    measured = f"the loss is {losses.training:.2f} on training text and {losses.validation:.2f} on validation text"
    if memorises(losses, config):
        who = "a second run" if config.train.student_teachers == 1 else "another run"
        what = f"{measured}: the model begins to memorise the text, so {who} will learn from this one"
        return Notice(runs_in_all(config.train.student_teachers), what)
    return Notice("one run", f"{measured}: the model does not memorise the text, so this run goes on and no second run follows")


def describe_place(config: Config, folder: Path) -> list[Notice]:
    """Which of several runs the one in `folder` is that continues with the settings `config`; nothing for a single run."""
    student = student_folder(folder)
    if not config.train.student_minutes or (student is not None and has_steps(student)):
        return []
    number = number_of(folder)
    count = max(config.train.student_teachers, number)
    this = "this is the first one" if count == 1 else f"this is number {number} of {count} like it"
    condition = " if it memorises its text" if is_undecided(config) else ""
    whom = "it" if count == 1 else "them"
    return [Notice(runs_in_all(count), f"{this}; a model of the same shape then learns from {whom}{condition}")]


def describe_next(config: Config, name: str, teachers: Sequence[Path], *, is_student: bool) -> Notice:
    """What the run `name`, which begins with the settings `config`, is for. The `teachers` have ended."""
    first = shown(teachers[0])
    if not is_student:
        count, number = config.train.student_teachers, len(teachers) + 1
        return Notice("next run", f"{name} is number {number} of {count} like {first}; it has seed {config.train.seed}")
    own = f"weight decay {config.optim.weight_decay:g}, dropout 0, no patience and seed {config.train.seed}"
    label, more = ("second run", "") if len(teachers) == 1 else ("last run", f" and {plural(len(teachers) - 1, 'other')}")
    return Notice(label, f"{name} learns from {first}{more}; it has {own}")


def why_no_next_run(
    ended: Path, student: Path, teachers: Sequence[Path], *, fingerprint: str, processes: int
) -> Message | None:
    """Why no run follows the one in the folder `ended`, and what to do; None if one follows.

    The run in the folder `student` is to learn from the text with this `fingerprint`, and from several runs: the
    `teachers` are those that have ended.
    """
    if ended.name not in [path.name for path in teachers]:  # it was not renamed, or one before it is gone
        name = next_teacher_folder(student).name
        what = f"{shown(ended)}: for the run that follows, rename this folder to {name}, and then "
        return Message(what, resuming(name))
    if has_steps(student):
        return _about_student(student, ended, fingerprint)
    if processes > 1:
        return Message(f"{shown(student)}: for this run, continue without torchrun: ", resuming(shown(ended)))
    return problem_of_teachers(teachers, fingerprint, again=resuming(shown(student)))


def _about_student(student: Path, ended: Path, fingerprint: str) -> Message:
    """What the run in the folder `student` is, which the one in `ended` was to have taught, and what to do."""
    with contextlib.suppress(CheckpointError):
        state = newest(student, training=False)[0].state
        if state.fingerprint != fingerprint or not (state.config.train.teachers or state.config.train.student_minutes):
            what = f"{shown(student)} is a run of another command; rename that folder, and then "
            return Message(what, resuming(shown(ended)))
    return Message(f"{shown(student)} exists; if it is not complete, continue it with ", resuming(shown(student)))
