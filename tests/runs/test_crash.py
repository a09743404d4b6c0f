"""kill -9 at any moment: the run goes on, and ends with the bits of one that was never touched."""

import dataclasses
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import bits, logged_without_speed
from programs import DEVNULL, Programs

from chargpt.runs.checkpoint import newest, steps
from chargpt.runs.checkpoint_schema import SavedState

SETTINGS = (
    "--config tiny train.max_steps=90 train.eval_interval=30 train.log_interval=3 checkpoint.interval=5 "
    "train.sample_length=10 model.dropout=0.1 model.positions=rotary runtime.threads=1"
).split()
OPTIMIZERS = ("adamw", "muon")


class Trainer:
    """train.py in child processes."""

    def __init__(self, programs: Programs, text: Path, folder: Path) -> None:
        self.programs, self.text, self.folder = programs, text, folder

    def run(self, name: str, *settings: str, kill_when: Callable[[float], bool] | None = None) -> int:
        """Begin or continue the run; the exit code. `kill_when` is asked with the seconds so far."""
        run = self.folder / name
        if run.is_dir() and steps(run):
            arguments = ["--resume", "--run", str(run)]
        else:
            place = [f"data.cache={self.folder}/cache", "--run", str(run)]
            arguments = [str(self.text), *SETTINGS, *settings, *place]
        started = time.monotonic()
        with self.programs.start("train", *arguments, stdout=DEVNULL, stderr=DEVNULL) as training:
            if kill_when is not None:
                while training.poll() is None and not kill_when(time.monotonic() - started):
                    time.sleep(0.001)
                training.send_signal(signal.SIGKILL)
            return training.wait()


@pytest.fixture
def trainer(programs, text, tmp_path) -> Trainer:
    return Trainer(programs, text, tmp_path)


def step_of(run: Path) -> int:
    """That of the newest checkpoint; -1 if there is none."""
    found = steps(run) if run.is_dir() else []
    return int(found[-1].name.removeprefix("step-")) if found else -1


def reached(run: Path) -> SavedState:
    """What the newest checkpoint says, but for the time that its steps took; and it says all of it."""
    state = newest(run)[0].state
    progress = state.progress
    assert progress.first_loss and progress.best_sample and progress.train_loss and progress.seconds > 0
    return dataclasses.replace(state, progress=dataclasses.replace(progress, seconds=0.0))


def kill_runs(trainer: Trainer, *, count: int) -> int:
    """`count` runs, each killed at three random moments: one in the start or soon after it, and two later.

    The number of processes that died by it. The later moments are those of steps, so they do not depend on the speed of the
    machine.
    """
    draw, died = random.Random(count), 0
    for number in range(count):
        optimizer, name = f"optim.name={OPTIMIZERS[-1 - number % 2]}", f"killed-{count}-{number}"
        run, whole = trainer.folder / name, trainer.folder / f"whole-{optimizer}"  # that one is never disturbed
        assert whole.exists() or trainer.run(whole.name, optimizer) == 0
        for step in (-1, *sorted(draw.sample(range(60), 2))):
            delay, begins = draw.uniform(0, 0.05 if step >= 0 else 0.3), []  # begins: when the step was seen

            def is_time(passed: float, step=step, delay=delay, begins=begins) -> bool:
                if not begins and step_of(run) >= step:
                    begins.append(passed)
                return bool(begins) and passed >= begins[0] + delay

            code = trainer.run(name, optimizer, kill_when=is_time)
            assert code in (0, -signal.SIGKILL)  # 0: it was done before the signal came
            died += code != 0
        assert trainer.run(name, optimizer) == 0
        assert step_of(run) == 90
        assert bits(run) == bits(whole) and reached(run) == reached(whole), f"run {number}"
        assert logged_without_speed(run) == logged_without_speed(whole), f"run {number}"
        assert [path.name for path in run.glob(".*")] == [".lock"]
    return died


def test_killed_at_random_moments(trainer):
    assert kill_runs(trainer, count=1) >= 2


@pytest.mark.nightly
def test_killed_at_random_moments_210_times(trainer):
    died = kill_runs(trainer, count=70)
    print(f"{died} processes killed in 70 runs")
    assert died >= 180


@pytest.mark.nightly
def test_killed_over_stages_40_times(trainer):
    """Runs of three models, each killed at a random moment of all that it takes. test_stages.py kills them at each boundary."""
    draw, died, staged = random.Random(40), 0, ("train.teachers=2", "train.max_steps=40", "checkpoint.interval=4")
    started = time.monotonic()
    assert trainer.run("whole", *staged) == 0
    takes, whole = time.monotonic() - started, trainer.folder / "whole"
    for number in range(40):
        run, moment = trainer.folder / f"killed-{number}", draw.uniform(0, takes)
        code = trainer.run(run.name, *staged, kill_when=lambda passed, moment=moment: passed >= moment)
        assert code in (0, -signal.SIGKILL)  # 0: it was done before the signal came
        died += code != 0
        assert trainer.run(run.name, *staged) == 0
        assert bits(run / "stage-3") == bits(whole / "stage-3"), f"run {number}, killed after {moment:.2f} s"
        assert logged_without_speed(run) == logged_without_speed(whole), f"run {number}"
    assert died >= 30
