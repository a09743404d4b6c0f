"""The one model of a training's time, and what is said of a training before its first step: its model, its time, its memory.

The timing of candidates, or that of some steps, makes a `TimeModel`; the clock of a training corrects it (clock.py).
"""

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from chargpt.config import Config
from chargpt.graphs import WARM_UP
from chargpt.planning.memory import memory_needed
from chargpt.terminal import Notice, clock, plural
from chargpt.text.corpus import Corpus
from chargpt.training.evaluation import validation_split
from chargpt.training.optimizer_kinds import OPTIMIZERS
from chargpt.training.thread_spinning import ThreadSpinning
from chargpt.training.trainer import Trainer

# Seconds that an idle machine needs before the first step and after the last one: imports, planning, the report.
OVERHEAD_SECONDS = 5.0
# Share of a run's time for them, at most.
OVERHEAD_SHARE = 1 / 3
# Share of the time that is for saves, and for steps that take longer than those that were timed.
RESERVE = 0.08
# Evaluations of a run, at most, after the one before the first step.
MAX_EVALUATIONS = 10
# Share of a run's time for them, at most.
EVALUATION_SHARE = 0.1
# An evaluation computes the loss alone, which is a third of the work for its gradient.
EVALUATES_FASTER = 3.0
# Characters in a step that is timed on a CPU, at most: more characters do not make it faster.
MOST_TIMED = 2**15
# The first steps are slower: they allocate memory, fill caches and compile.
SETTLING_STEPS = 3
# Steps, as train.max_steps allows.
MAX_STEPS = 10**12


@dataclass(frozen=True)
class TimeModel:
    """How long the parts of a training take, in seconds."""

    step: float
    evaluation: float  # with what follows it
    overhead: float = OVERHEAD_SECONDS  # before the first step and after the last one

    def duration(self, steps: int, *, interval: int) -> float:
        """The seconds of this many steps with an evaluation after every `interval` of them and one at the end."""
        return steps * self.step + (1 + steps // interval) * self.evaluation

    def steps_in(self, seconds: float, *, interval: int) -> int:
        """The steps that fit into `seconds`, with evaluations as in `duration`; 0 or more."""
        return int(max(0.0, seconds - self.evaluation) / (self.step + self.evaluation / interval))

    def evaluations_in(self, seconds: float) -> int:
        """How many evaluations a run of so many seconds has, besides the one before the first step."""
        return max(1, min(MAX_EVALUATIONS, int(EVALUATION_SHARE * seconds / max(self.evaluation, 1e-9))))

    def in_steps(self, seconds: float) -> float:
        """How much of the `seconds` of a run is for steps."""
        evaluating = (1 + self.evaluations_in(seconds)) * self.evaluation  # the first one comes before the first step
        return max(0.3 * seconds, (1 - RESERVE) * (seconds - self.overhead) - evaluating)

    def at_most(self, steps: float) -> float:
        """The seconds of a run of so many steps, also on a machine that becomes slower; a few more do no harm."""
        busy = steps * self.step + (1 + MAX_EVALUATIONS) * self.evaluation
        return 1.5 * self.overhead + 1.25 * busy / (1 - RESERVE)

    def reserve(self, seconds: float) -> float:
        """The part of a time limit of so many seconds that is for `overhead`."""
        return min(self.overhead, OVERHEAD_SHARE * seconds)


# The length of a run


def steps_in(epochs: float, config: Config, *, characters: int) -> int:
    """The steps in which a run reads a training text of this many characters this number of times; rounded up."""
    return max(1, math.ceil(epochs * characters / config.chars_per_step))


def longest_run(config: Config, *, characters: int) -> int:
    """The highest number of steps of a run, from `train.max_epochs` and the length of the training text; rounded up."""
    return steps_in(config.train.max_epochs, config, characters=characters) if config.train.max_epochs else MAX_STEPS


def long_enough(config: Config, *, step: int, seconds: float | None) -> Config:
    """With a time limit: a run long enough to measure the speed before the rate falls, whatever its preset says."""
    if seconds is None:
        return config
    steps = max(step + 4 * (SETTLING_STEPS + 1), config.train.max_steps)
    return dataclasses.replace(config, train=dataclasses.replace(config.train, max_steps=steps))


# What is said of a training


def describe_training(
    trainer: Trainer, corpus: Corpus, *, seconds: float | None, time_model: TimeModel | None = None, steps: int | None = None
) -> list[Notice]:
    """The model, the machine and the length of a training that begins or continues, how long it takes and its memory.

    `seconds` is its time limit, if it has one, and `steps` how many are expected to fit, if that is known. Without a
    `time_model`, some steps are timed and discarded, unless the training is finished.
    """
    config, runtime, characters = trainer.config, trainer.runtime, len(corpus.train)
    notices = _setup(trainer, corpus, seconds=seconds)
    if not trainer.is_finished:
        known = time_model or timed(trainer, corpus)
        done = trainer.progress.step
        left, takes, is_limited = forecast(known, config, characters=characters, done=done, seconds=seconds, fitting=steps)
        parameters, vocabulary = trainer.model.parameter_count(), corpus.tokenizer.vocab_size
        memory = memory_needed(config, parameters=parameters, vocab_size=vocabulary, processes=trainer.group.size)
        count, epochs = plural(left, "step"), left * config.chars_per_step / characters
        in_full = f"about {count} in {clock(takes)}" if is_limited else f"{clock(takes)} for {count} and their evaluations"
        in_brief = f"{clock(takes)}, about {count}" if is_limited else f"{count}, {epochs:.1f} epochs, about {clock(takes)}"
        size = f"{max(memory, 1e8) / 1e9:.1f} GB of memory"
        notices += [
            Notice("estimate", f"{1000 * known.step:.1f} ms a step, {in_full}, {size}", "detail"),
            Notice("training", f"{in_brief} on {runtime.describe()}", "summary"),
        ]
    return [*notices, *[Notice("slower", runtime.slower)] * bool(runtime.slower)]


def _setup(trainer: Trainer, corpus: Corpus, *, seconds: float | None) -> list[Notice]:
    """What is trained, on what, and how."""
    config, model = trainer.config, trainer.config.model
    notices = []
    evaluated = len(validation_split(corpus.val, config.train.eval_chars)) - 1
    if 0 < evaluated < len(corpus.val) - 1:
        some = f"on the first {evaluated:,} characters of the validation split; train.eval_chars=0 uses all"
        notices.append(Notice("evaluated", some, "detail"))
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
    return notices


def forecast(
    known: TimeModel, config: Config, *, characters: int, done: int, seconds: float | None, fitting: int | None
) -> tuple[int, float, bool]:
    """The steps left of a training after `done` ones, their seconds with evaluations, and whether a time limit ends it.

    `characters` are those of the training split; `fitting` are the steps in the time limit `seconds`, if that is known.
    """
    left, is_limited = config.train.max_steps - done, False
    if seconds is not None:
        if fitting is None:
            fitting = known.steps_in(seconds - known.reserve(seconds), interval=config.train.eval_interval)
        longest = longest_run(config, characters=characters) - done
        left, is_limited = max(1, min(fitting, longest)), fitting < longest - 1  # the last one may be a part of a step
    takes = known.duration(left, interval=config.steps_between_evaluations)
    return left, seconds if seconds is not None and is_limited else takes, is_limited


def timed(trainer: Trainer, corpus: Corpus) -> TimeModel:
    """The times of a training, from those of some steps."""
    gradient, update = step_parts(trainer)
    return TimeModel(gradient + update, evaluation_steps(corpus, trainer.config) * gradient / EVALUATES_FASTER)


def step_parts(trainer: Trainer) -> tuple[float, float]:
    """The seconds of the gradient of a step and of its update, from the fastest of a few that are computed and discarded.

    This takes some seconds at most, and with compiling about a minute, which the first step then does not need. Of a large
    batch on a CPU, MOST_TIMED characters are computed.
    """
    train = trainer.config.train
    timed = windows = trainer.rows.stop - trainer.rows.start  # of this process
    if trainer.runtime.device.type == "cpu" and not trainer.runtime.compile:
        timed = max(1, min(windows, MOST_TIMED // trainer.config.model.block_size))
    gradients: list[float] = []
    updates: list[float] = []
    with ThreadSpinning(trainer.runtime):
        if trainer.runtime.compile or trainer.runtime.runs_ahead:  # the first call compiles, the last one records graphs
            for _ in range(WARM_UP + 1):
                trainer.rehearse()
        while _wants_another(gradients):
            gradients.append(_seconds(lambda: trainer.rehearse(timed)))
        while _wants_another(updates):
            updates.append(_seconds(trainer.rehearse_update))
    return min(gradients) * windows / timed * train.accumulate, min(updates)


def evaluation_steps(corpus: Corpus, config: Config) -> float:
    """How many steps have as many characters as an evaluation."""
    return len(validation_split(corpus.val, config.train.eval_chars)) / config.chars_per_step


def _wants_another(seconds: list[float]) -> bool:
    return len(seconds) < 2 and sum(seconds) < 3 or len(seconds) < 4 and sum(seconds) < 0.3


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
