"""Real signals at every stage of train.py: what was learned is saved, and the resumed run equals an uninterrupted one.

This file has no module of its own: it tests train.py, chargpt/interrupt.py and the saving of a run together.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers import SHORT_RUN, bits, last_step, logged_without_speed

import train
from chargpt.program import run_program
from chargpt.runs.checkpoint import newest
from chargpt.sampling.sample_writer import SampleWriter
from chargpt.training.trainer import Trainer

SETTINGS = [*SHORT_RUN, "model.dropout=0.1"]
CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}
CALLS = ("open", "write", "fsync", "rename", "replace", "mkdir", "unlink")

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX signals and fork"),
    pytest.mark.usefixtures("default_signals"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, text) -> Path:
    """A folder with the run `whole`, which no signal met, and the encoded text."""
    folder = tmp_path_factory.mktemp("signals")
    torch.set_num_threads(1)
    assert begin(folder / "whole", text) == 0
    return folder


def begin(run: Path, text: Path) -> int:
    return train.main([str(text), *SETTINGS, f"data.cache={run.parent}/cache", "--run", str(run)])


def send(name: str) -> None:
    os.kill(os.getpid(), getattr(signal, name))


def check_that_it_goes_on(run: Path) -> None:
    """A stopped run resumes, and ends with the bits and the log of the one that was not stopped."""
    whole = run.parent / "whole"
    assert train.main(["--resume", "--run", str(run)]) == 0
    assert bits(run) == bits(whole) and logged_without_speed(run) == logged_without_speed(whole)
    assert [path.name for path in run.glob(".*")] == [".lock"]


PLACES = {"step": (Trainer, "_compute_gradient"), "evaluation": (Trainer, "calibrate"), "sample": (SampleWriter, "write")}
AT_ONE = [
    ("SIGINT", "step", 1),
    ("SIGTERM", "step", 7),
    ("SIGHUP", "step", 12),
    ("SIGHUP", "evaluation", 2),
    ("SIGINT", "sample", 2),
]


@pytest.mark.parametrize("name, place, number", AT_ONE)
def test_a_signal_at_a_place_of_the_run_loses_nothing(folder, text, name, place, number, monkeypatch):
    """It comes in the `number`-th step of the run, evaluation or sample."""
    run, calls = folder / f"{name}-{place}-{number}", []
    owner, method = PLACES[place]
    real = getattr(owner, method)

    def counted(self: object, *given: object, **more: object) -> object:
        calls.extend([self] if run.exists() else [])  # before, steps are timed
        if len(calls) == number:
            send(name)
        return real(self, *given, **more)

    monkeypatch.setattr(owner, method, counted)
    assert begin(run, text) == CODES[name]
    monkeypatch.undo()
    if place == "step":  # that step is finished and saved
        assert newest(run)[0].step == number
    check_that_it_goes_on(run)


class Calls:
    """Runs `action` before the `fatal`-th file operation of those that follow the appearance of `after` in the run."""

    def __init__(self, patch: pytest.MonkeyPatch, after: Path, fatal: int, action: Callable[[], None]) -> None:
        self.after, self.fatal, self.action, self.count = after, fatal, action, 0
        for name in CALLS:
            patch.setattr(os, name, self.counted(getattr(os, name)))

    def counted(self, real: Callable) -> Callable:
        def call(*given: object, **named: object) -> object:
            if given[0] not in (1, 2) and (self.count or self.after.exists()):  # what is printed is no operation of a save
                self.count += 1
                if self.count == self.fatal:
                    self.action()
            return real(*given, **named)

        return call


def stop_at_call(run: Path, text: Path, fatal: int, *names: str) -> tuple[int, int]:
    """A run with signals at one file operation after the second checkpoint. Its exit code, and the operations there were.

    It has a process of its own, which a second signal ends at once.
    """
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        for number in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        sys.stdout, sys.stderr = open(1, "w"), open(2, "w")
        with pytest.MonkeyPatch.context() as patch:
            calls = Calls(patch, run / "step-00000003", fatal, lambda: [send(name) for name in names])
            code = run_program(lambda: begin(run, text))
            os.write(write, str(calls.count).encode())
            os._exit(code)
    os.close(write)
    with open(read) as said:
        count = said.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), int(count or fatal)


@pytest.mark.parametrize("stride", [67, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_signal_at_any_file_operation_of_a_save_loses_nothing(folder, text, stride):
    fatal, code, names = 1, 0, list(CODES)
    while True:
        name, run = names[fatal % 3], folder / f"save-{stride}-{fatal}"
        code, count = stop_at_call(run, text, fatal, name)
        if count < fatal:  # the run has ended before
            break
        is_over = newest(run)[0].state.is_finished  # a signal after it has nothing to stop, or ends Python at its end
        assert code == CODES[name] or is_over and code in (0, -getattr(signal, name)), f"operation {fatal}"
        check_that_it_goes_on(run)
        fatal += stride
    assert code == 0 and fatal > 40


@pytest.mark.parametrize("fatal", [13, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(1, 40) if n != 13)])
def test_a_second_signal_during_a_save_ends_at_once_and_costs_no_checkpoint(folder, text, fatal):
    run = folder / f"twice-{fatal}"
    assert stop_at_call(run, text, fatal, "SIGINT", "SIGTERM")[0] == 143
    found, skipped = newest(run)
    assert found.step in (3, 4, 6) and skipped == [] and last_step(run) == found.path
    check_that_it_goes_on(run)
