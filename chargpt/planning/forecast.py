"""What a training will be like, before its first step: its model, its time and its memory."""

import time
from collections.abc import Callable
from typing import NamedTuple

from chargpt.config import Config
from chargpt.errors import Message, Option
from chargpt.planning.chosen_for_time import MOST_TIMED
from chargpt.planning.clock import duration, kept_back, longest_run, steps_that_fit
from chargpt.planning.memory import memory_needed
from chargpt.terminal import Notice, clock, plural, shown
from chargpt.text.corpus import Corpus
from chargpt.training.evaluation import validation_split
from chargpt.training.optimizer_kinds import OPTIMIZERS
from chargpt.training.thread_spinning import ThreadSpinning
from chargpt.training.trainer import Trainer


class StepTimes(NamedTuple):
    """What a step spends its time on, in seconds."""

    gradient: float  # of all micro-batches
    update: float  # of the weights

    @property
    def step(self) -> float:
        return self.gradient + self.update


def describe_training(trainer: Trainer, corpus: Corpus, *, seconds: float | None, steps: int | None = None) -> list[Notice]:
    """The model, the machine and the length of a training that begins or continues, how long it takes and its memory.

    `seconds` is its time limit, if it has one, and `steps` how many are expected to fit, if that is known. Times a few steps,
    which are discarded, unless the training is finished.
    """
    config, characters = trainer.config, len(corpus.train)
    notices = _setup(trainer, corpus, seconds=seconds)
    if not trainer.is_finished:
        times, done = step_times(trainer), trainer.progress.step
        evaluation = evaluation_seconds(config, corpus, times)
        known = forecast(
            config, characters=characters, step=times.step, evaluation=evaluation, done=done, seconds=seconds, fitting=steps
        )
        parameters, vocabulary = trainer.model.parameter_count(), corpus.tokenizer.vocab_size
        memory = max(1e8, memory_needed(config, parameters=parameters, vocab_size=vocabulary))
        notices += [
            Notice("estimate", f"{known.in_full()}, {memory / 1e9:.1f} GB of memory", "detail"),
            Notice("training", f"{known.in_brief(config, characters=characters)} on {trainer.runtime.describe()}", "summary"),
        ]
    if trainer.runtime.slower:
        notices.append(Notice("slower", trainer.runtime.slower))
    return notices


def _setup(trainer: Trainer, corpus: Corpus, *, seconds: float | None) -> list[Notice]:
    """What is trained, on what, and how."""
    config, model = trainer.config, trainer.config.model
    notices = []
    evaluated = len(validation_split(corpus.val, config.train.eval_chars)) - 1
    if evaluated < len(corpus.val) - 1:
        some = f"on the first {evaluated:,} characters of the validation split; "
        notices.append(Notice("evaluated", Message(some, Option("train.eval_chars", 0), " uses all"), "detail"))
    most = f", at most {config.train.max_epochs:g} epochs" if config.train.max_epochs else ""
    length, epochs = f"as many steps as fit into {clock(seconds or 0)}{most}, each", ""
    if seconds is None:
        length = plural(config.train.max_steps, "step")
        epochs = f", {config.train.max_steps * config.chars_per_step / len(corpus.train):.1f} epochs"
    size = f"{trainer.model.parameter_count():,} parameters: {plural(model.n_layer, 'layer')}"
    shape = f"width {model.n_embd}, context {model.block_size}, {model.positions} positions"
    how = f"{config.optim.name}, rate {config.optim.learning_rate:g}, {config.optim.schedule} schedule"
    notices += [
        Notice("model", f"{size}, {plural(model.n_head, 'head')}, {shape}, dropout {model.dropout:g}", "detail"),
        Notice("model", f"{size}, {shape}; {OPTIMIZERS[config.optim.name].label}", "summary"),
        Notice("machine", trainer.runtime.describe(), "detail"),
        Notice("training", f"{length} of {config.chars_per_step:,} characters{epochs}; {how}", "detail"),
    ]
    if config.train.teachers:
        notices.append(Notice("teachers", ", ".join(map(shown, config.train.teacher_names)), "detail"))
    return notices


class Forecast(NamedTuple):
    """About how long a training takes from here: what is said of it before the speed of its own steps is known."""

    step: float  # seconds of one
    steps: int  # that are left
    seconds: float  # that they take, with evaluations
    is_limited: bool  # whether its time limit ends the training

    def in_full(self) -> str:
        each = f"{1000 * self.step:.1f} ms a step"
        if self.is_limited:
            return f"{each}, about {plural(self.steps, 'step')} in {clock(self.seconds)}"
        return f"{each}, {clock(self.seconds)} for {plural(self.steps, 'step')} and their evaluations"

    def in_brief(self, config: Config, *, characters: int) -> str:
        if self.is_limited:
            return f"{clock(self.seconds)}, about {plural(self.steps, 'step')}"
        epochs = self.steps * config.chars_per_step / characters
        return f"{plural(self.steps, 'step')}, {epochs:.1f} epochs, about {clock(self.seconds)}"


def forecast(
    config: Config,
    *,
    characters: int,
    step: float,
    evaluation: float,
    done: int = 0,
    seconds: float | None = None,
    fitting: int | None = None,
) -> Forecast:
    """The rest of a training of `config` after `done` steps, on a training split of this many `characters`.

    `step` and `evaluation` are the seconds of one each. Of the time limit `seconds`, a part is for the end of the run, as a
    Clock keeps it back; `fitting` are the steps in it, if that is known.
    """
    left, is_limited = config.train.max_steps - done, False
    if seconds is not None:
        if fitting is None:
            time_left = seconds - kept_back(seconds)
            fitting = steps_that_fit(time_left, step=step, evaluation=evaluation, interval=config.train.eval_interval)
        longest = longest_run(config, characters=characters) - done
        left, is_limited = max(1, min(fitting, longest)), fitting < longest - 1  # the last one may be a part of a step
    takes = duration(left, step=step, evaluation=evaluation, interval=config.steps_between_evaluations)
    return Forecast(step, left, seconds if seconds is not None and is_limited else takes, is_limited)


def evaluation_seconds(config: Config, corpus: Corpus, times: StepTimes) -> float:
    """About how long an evaluation takes: it computes the loss alone, which is a third of the work for its gradient."""
    steps = len(validation_split(corpus.val, config.train.eval_chars)) / config.chars_per_step
    return steps * times.gradient / 3


def step_times(trainer: Trainer) -> StepTimes:
    """The times of a step's parts, from the fastest of a few that are computed and discarded.

    This takes some seconds at most, and with compiling about a minute, which the first step then does not need. Of a large
    batch on a CPU, MOST_TIMED characters are computed.
    """
    train, chunks = trainer.config.train, max(1, trainer.config.train.chunks)
    timed = windows = train.batch_size // chunks  # of a chunk
    if trainer.runtime.device.type == "cpu" and not trainer.runtime.compile:
        timed = max(1, min(windows, MOST_TIMED // (chunks * trainer.config.model.block_size)))
    gradients: list[float] = []
    updates: list[float] = []
    with ThreadSpinning(trainer.runtime):
        if trainer.runtime.compile:  # the first call compiles, the second one records CUDA graphs
            trainer.rehearse()
            trainer.rehearse()
        while _wants_another(gradients):
            gradients.append(_seconds(lambda: trainer.rehearse(timed)))
        while _wants_another(updates):
            updates.append(_seconds(trainer.rehearse_update))
    return StepTimes(min(gradients) * windows / timed * train.accumulate, min(updates))


def _wants_another(seconds: list[float]) -> bool:
    return len(seconds) < 2 and sum(seconds) < 3 or len(seconds) < 4 and sum(seconds) < 0.3


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
