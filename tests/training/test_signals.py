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
from helpers import SHORT_RUN, after_each_piece, bits, last_step, logged_without_speed
from torch.nn.modules.module import register_module_forward_hook

import train
from chargpt.model import GPT
from chargpt.runs.checkpoint import newest
from chargpt.terminal import run_program

# The tests count the passes of model.py.
SETTINGS = [*SHORT_RUN, "model.dropout=0.1", "runtime.step=torch"]
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


STAGES: dict[str, Callable[[torch.nn.Module, torch.Tensor], bool]] = {
    "step": lambda model, idx: model.training,
    "evaluation": lambda model, idx: not model.training and idx.size(1) > 1,
}


AT_ONE = [
    ("SIGINT", "step", 1),
    ("SIGTERM", "step", 7),
    ("SIGHUP", "step", 12),
    ("SIGHUP", "evaluation", 3),
    ("SIGINT", "sample", 3),
]


@pytest.mark.parametrize("name, stage, number", AT_ONE)
def test_a_signal_during_a_stage_of_the_run_loses_nothing(folder, text, name, stage, number, monkeypatch):
    """It comes at the end of the `number`-th forward pass of that stage, or after that piece of a sample."""
    run, passes = folder / f"{name}-{stage}-{number}", dict.fromkeys([*STAGES, "sample"], 0)

    def pass_done(module: torch.nn.Module, inputs: tuple, out: torch.Tensor) -> None:
        if not isinstance(module, GPT):
            return
        for name_of_stage, is_stage in STAGES.items():
            # The passes in training mode before the first evaluation estimate the run's time; they are no steps.
            passes[name_of_stage] += is_stage(module, inputs[0]) and (name_of_stage != "step" or passes["evaluation"] > 0)
        send_if_due()

    def piece_done() -> None:
        passes["sample"] += 1
        send_if_due()

    def send_if_due() -> None:
        if passes[stage] == number and not sent:
            sent.append(number)
            send(name)

    sent: list[int] = []
    after_each_piece(monkeypatch, piece_done)
    hook = register_module_forward_hook(pass_done)
    try:
        assert begin(run, text) == CODES[name]
    finally:
        hook.remove()
    if stage == "step":  # that step is finished and saved
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

    It has a process of its own, since a signal during the report at the end ends the program at once, as a second one does.
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


@pytest.mark.parametrize("stride", [41, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_signal_at_any_file_operation_of_a_save_loses_nothing(folder, text, stride):
    fatal, code, names = 1, 0, list(CODES)
    while True:
        name, run = names[fatal % 3], folder / f"save-{stride}-{fatal}"
        code, count = stop_at_call(run, text, fatal, name)
        if count < fatal:  # the run has ended before
            break
        is_over = (run / "report.html").exists()  # a signal after it has nothing to stop, or ends Python at its end
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
