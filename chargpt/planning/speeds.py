"""How fast this machine trains: what is known from earlier runs, what a few steps tell, and what follows for other sizes.

Speeds are kept in the user's folder for caches. A machine that knows its speeds times nothing before the first step of a run.
One that does not times two or three sizes, for some tenths of a second. Each run writes down how fast its own steps were, in
place of what was known of them.
"""

import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from chargpt.config import Config
from chargpt.files import publish_file
from chargpt.graphs import WARM_UP
from chargpt.model import GPT
from chargpt.planning.budget import TimeModel
from chargpt.processor import processor_name
from chargpt.project import user_cache_folder
from chargpt.runs.blank_model import gpt_config
from chargpt.runs.checkpoint_schema import parameter_count, read_bounded
from chargpt.settings import COMMAND_LINE, apply
from chargpt.text.corpus import Corpus
from chargpt.training.evaluation import validation_split
from chargpt.training.runtime import choose_runtime
from chargpt.training.trainer import Trainer

EVALUATES_FASTER = 3.0  # an evaluation computes the loss alone, which is a third of the work for its gradient
MOST_TIMED = 2**13  # characters in a step that is timed on a CPU, at most: more characters do not make it faster
TIMED_TOGETHER = 10  # steps on a GPU that are timed together: the host waits for it after them
TIMED_SECONDS, TIMED = 0.1, 10  # steps are timed for so many seconds at least, and so often at most
# Step time grows as parameters^STEP_TIME_EXPONENT, about. Two sizes that are so many times apart tell it for this machine,
# within EXPONENTS: in small models, call overhead dominates.
STEP_TIME_EXPONENT, FAR_APART, EXPONENTS = 0.8, 2.0, (0.6, 1.0)
# A speed is known if that of a model is with this many times as many parameters, or as few; a guess, not measured.
SAME_SIZE = 1.25
MOST_KEPT, MOST_BYTES = 500, 2**20  # speeds in the file, and bytes of a file that is read
POSSIBLE = (1e-3, 1e12)  # characters a second; another number is none that was measured
MOST_PARAMETERS = 10**13
KERNELS = ("step", "attention")  # in a runtime's environment: what differs between models of one machine


class Timed(NamedTuple):
    """A training whose speed is known."""

    machine: str  # with the software, the number of processes and the optimizer: what the speeds of all sizes depend on
    kernels: str  # that this one used
    training: str  # what else decides its speed
    parameters: int
    speed: float  # characters a second of all processes together


class Speeds:
    """The speeds of trainings on one corpus, with these teachers, in so many processes."""

    def __init__(self, corpus: Corpus, teachers: Sequence[GPT] = (), *, processes: int = 1) -> None:
        self.corpus, self.teachers, self.processes = corpus, teachers, processes
        self._timed = _read()
        self._environments = dict[object, dict[str, str | int | bool]]()  # by the model and the settings of the machine

    def measured(self, config: Config) -> float:
        """The speed of exactly this training: as it is known, or timed now."""
        asked = self._asked(config)
        known = [timed.speed for timed in self._timed if timed[:3] == asked[:3]]
        if not known:
            self.keep(config, self.processes * training_speed(config, self.corpus, self.teachers))
            return self._timed[-1].speed
        return known[0]

    def expected(self, config: Config) -> float:
        """The speed of this training, as it follows from those of the sizes next to it; if none is known, it is timed."""
        near = self._near(self._asked(config))
        if not near:
            return self.measured(config)
        by_size = {timed.parameters: timed.speed for timed in sorted(near, key=lambda timed: timed.parameters)}
        sizes, speeds, size = np.log(list(by_size)), np.log(list(by_size.values())), math.log(self._parameters(config))
        exponent, apart = STEP_TIME_EXPONENT, sizes[-1] - sizes[0]
        if apart >= math.log(FAR_APART):
            exponent = float(np.clip((speeds[0] - speeds[-1]) / apart, *EXPONENTS))
        beyond = min(0.0, size - sizes[0]) + max(0.0, size - sizes[-1])
        return float(np.exp(np.interp(size, sizes, speeds) - exponent * beyond))

    def is_known(self, config: Config) -> bool:
        """Whether the speed of a model of about this size, with the same kernels, is known."""
        asked = self._asked(config)
        same = [timed for timed in self._near(asked) if timed.kernels == asked.kernels]
        return any(1 / SAME_SIZE <= asked.parameters / timed.parameters <= SAME_SIZE for timed in same)

    def time_model(self, config: Config, *, speed: float | None = None) -> TimeModel:
        """The times of a training with this speed, or the one that is known or timed now."""
        speed = self.measured(config) if speed is None else speed
        evaluated = len(validation_split(self.corpus.val, config.train.eval_chars))
        return TimeModel(config.chars_per_step / speed, evaluated / EVALUATES_FASTER / speed)

    def keep(self, config: Config, speed: float) -> None:
        """This training had this speed: write it down for the next one. Never raises."""
        now = self._asked(config)._replace(speed=speed)
        known = {timed[:3]: timed for timed in (*self._timed, *_read())}
        known.pop(now[:3], None)
        self._timed = [*known.values(), now]
        with contextlib.suppress(OSError, RuntimeError):
            path = speeds_file()
            path.parent.mkdir(parents=True, exist_ok=True)
            publish_file(path, json.dumps(self._timed[-MOST_KEPT:], indent=0).encode())

    def _near(self, asked: Timed) -> list[Timed]:
        """What is known of this machine: with the same kernels, or else with any."""
        known = [timed for timed in self._timed if timed.machine == asked.machine]
        return [timed for timed in known if timed.kernels == asked.kernels] or known

    def _asked(self, config: Config) -> Timed:
        """What names a training, without its speed."""
        model, train = config.model, config.train
        key = (dataclasses.replace(model, dropout=0.0, block_size=1), config.runtime)
        if key not in self._environments:
            self._environments[key] = choose_runtime(config).environment()
        environment = self._environments[key]
        machine = [processor_name(), *(value for name, value in environment.items() if name not in KERNELS)]
        machine += [self.processes, config.optim.name, len(self.teachers)]
        shape = [model.n_layer, model.n_head, model.n_embd, model.block_size, model.positions, model.bias, model.dropout > 0]
        training = [*shape, train.batch_size, train.accumulate, self.corpus.tokenizer.vocab_size]
        kernels = [environment[name] for name in KERNELS]
        first, second, third = (", ".join(map(str, words)) for words in (machine, kernels, training))
        return Timed(first, second, third, self._parameters(config), speed=0.0)

    def _parameters(self, config: Config) -> int:
        return parameter_count(config.model, self.corpus.tokenizer.vocab_size)


def speeds_file() -> Path:
    """Where speeds are kept. Raises RuntimeError for a user without a home folder."""
    return user_cache_folder() / "chargpt" / "speeds.json"


def _read() -> list[Timed]:
    """What the file has that makes sense; nothing of a file that is missing or damaged."""
    known = list[Timed]()
    with contextlib.suppress(OSError, RuntimeError, ValueError, TypeError):
        entries = json.loads(read_bounded(speeds_file(), limit=MOST_BYTES))
        for *names, parameters, speed in entries:
            kinds = [type(value) for value in (*names, parameters, speed)]
            if kinds == [str, str, str, int, float] and 0 < parameters < MOST_PARAMETERS and POSSIBLE[0] < speed < POSSIBLE[1]:
                known.append(Timed._make([*names, parameters, speed]))
    return known


def training_speed(config: Config, corpus: Corpus, teachers: Sequence[GPT] = ()) -> float:
    """Characters a second of training `config` here, by the fastest of a few steps."""
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
        while sum(seconds) < TIMED_SECONDS and len(seconds) < TIMED:
            started = time.perf_counter()
            for _ in range(together):
                trainer.advance()
            trainer.report()
            seconds.append(time.perf_counter() - started)
        trainer.release()
    return config.chars_per_step * together / min(seconds)
