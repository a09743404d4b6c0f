"""The one model of a training's time: made by some steps that are timed, corrected by the clock of a training (clock.py)."""

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from chargpt.config import COMMAND_LINE, Config, apply
from chargpt.graphs import WARM_UP
from chargpt.model import GPT
from chargpt.runs.blank_model import gpt_config
from chargpt.text.corpus import Corpus
from chargpt.training.evaluation import validation_split
from chargpt.training.runtime import choose_runtime
from chargpt.training.trainer import Trainer

# Seconds that an idle machine needs before the first step and after the last one: imports, planning, the report.
OVERHEAD_SECONDS = 5.0
OVERHEAD_SHARE = 1 / 3  # share of a run's time for them, at most
RESERVE = 0.08  # share of the time that is for saves, and for steps that take longer than those that were timed
MAX_EVALUATIONS = 10  # evaluations of a run, at most, after the one before the first step
EVALUATION_SHARE = 0.1  # share of a run's time for them, at most
EVALUATES_FASTER = 3.0  # an evaluation computes the loss alone, which is a third of the work for its gradient
MOST_TIMED = 2**13  # characters in a step that is timed on a CPU, at most: more characters do not make it faster
TIMED_TOGETHER = 10  # steps on a GPU that are timed together: the host waits for it after them
STEADY_SECONDS = 0.15  # time steps for this many seconds, so that one undisturbed step is likely
SETTLING_STEPS = 3  # the first steps are slower: they allocate memory, fill caches and compile
MAX_STEPS = 10**12  # steps, as train.max_steps allows


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


def training_speed(config: Config, corpus: Corpus, teachers: Sequence[GPT] = (), *, at_least: float = STEADY_SECONDS) -> float:
    """Characters a second of training `config` here: the fastest of some steps, timed for `at_least` this many seconds."""
    # Compiling takes longer than the choice may, and with a rate or a decay of the user perhaps no step can be taken.
    gentle = {"learning_rate": 1e-6, "weight_decay": 0.0}
    config = apply(config, {"runtime": {"compile": "off"}, "optim": gentle}, where=COMMAND_LINE)
    runtime = choose_runtime(config)
    if runtime.device.type == "cpu" and config.chars_per_step > MOST_TIMED:
        windows = min(config.train.batch_size, max(1, MOST_TIMED // config.model.block_size))
        micro = max(1, MOST_TIMED // (windows * config.model.block_size))
        train = dataclasses.replace(config.train, batch_size=windows, accumulate=min(config.train.accumulate, micro))
        config = dataclasses.replace(config, train=train)
    seconds: list[float] = []
    together, first = (TIMED_TOGETHER, WARM_UP + 1) if runtime.runs_ahead else (1, 1)
    with runtime.applied():
        with torch.device(runtime.device if runtime.runs_ahead else "cpu"):  # a GPU is faster at random weights, too
            model = GPT(gpt_config(config.model), corpus.tokenizer.vocab_size)
        trainer = Trainer(model, corpus.train, config, runtime=runtime, marks=corpus.marks, teachers=teachers)
        for _ in range(first):
            trainer.step()  # allocates memory, and on a GPU records graphs
        while sum(seconds) < at_least or (len(seconds) < 3 and sum(seconds) < 2 * STEADY_SECONDS):
            started = time.perf_counter()
            for _ in range(together):
                trainer.advance()
            trainer.report()
            seconds.append(time.perf_counter() - started)
        trainer.release()
    return config.chars_per_step * together / min(seconds)


def time_model_of(config: Config, corpus: Corpus, *, speed: float) -> TimeModel:
    """The times of a training with so many characters a second."""
    evaluated = len(validation_split(corpus.val, config.train.eval_chars))
    return TimeModel(config.chars_per_step / speed, evaluated / EVALUATES_FASTER / speed)


def measured(config: Config, corpus: Corpus, teachers: Sequence[GPT] = (), *, processes: int = 1) -> TimeModel:
    """The times of a training, by a few steps."""
    return time_model_of(config, corpus, speed=processes * training_speed(config, corpus, teachers, at_least=0.0))


def steps_in(epochs: float, config: Config, *, characters: int) -> int:
    """The steps in which a run reads a training text of this many characters this number of times; rounded up."""
    return max(1, math.ceil(epochs * characters / config.chars_per_step))


def longest_run(config: Config, *, characters: int, epochs: float | None = None) -> int:
    """The highest number of steps of a run on so many characters, from its `epochs` or `train.max_epochs`; rounded up."""
    epochs = config.train.max_epochs if epochs is None else epochs
    return steps_in(epochs, config, characters=characters) if epochs else MAX_STEPS


def at_least_measurable(steps: int, *, step: int, seconds: float | None) -> int:
    """The `steps` of a run at `step`; with a time limit, enough to measure the speed before the rate falls."""
    return steps if seconds is None else max(step + 4 * (SETTLING_STEPS + 1), steps)
