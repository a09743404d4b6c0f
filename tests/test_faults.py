"""Every system call of a save is made to fail, and every byte of a checkpoint to lie: nothing is lost, nothing believed.

The first part runs in a process of its own (`python tests/test_faults.py MODE SCENARIO FOLDER`) that forks for each fault, as
a fork of pytest itself would carry its threads' locks along.
"""

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import Tensor

from chargpt import checkpoint
from chargpt.checkpoint import CheckpointError

ROOT = Path(__file__).parent.parent
MODES = ("crash", "error", "power cut loses data", "power cut loses names")
SCENARIOS = ("first", "third", "again")
CALLS = ("open", "write", "fsync", "rename", "replace", "mkdir", "rmdir", "unlink")
FILES = ("model.safetensors", "training.safetensors", "state.json")
SHAPES = {"embedding.weight": (11, 16), "bias": (16,), "empty": (0, 3), "head.weight": (96, 16)}


def expected(_: dict) -> dict[str, Tensor]:
    return {name: torch.empty(shape) for name, shape in SHAPES.items()}


def weights_at(step: int) -> dict[str, Tensor]:
    return {name: torch.full(shape, float(step)) for name, shape in SHAPES.items()}


def save(run: Path, step: int) -> Path:
    weights = weights_at(step)
    training = {f"{name}/{moment}": tensor / 3 for name, tensor in weights.items() for moment in ("exp_avg", "exp_avg_sq")}
    return checkpoint.publish(run, step, weights=weights, training=training, state={"vocabulary": "abc", "best_loss": 1.5})


def whole(found: checkpoint.Checkpoint) -> bool:
    return all(torch.equal(found.weights[name], tensor) for name, tensor in weights_at(found.step).items())


# --- every system call fails in turn --------------------------------------------------------------------------------------


class Disk:
    """Stands before the system calls of a save and makes the `fatal`-th one fail, in one of the MODES.

    After a power cut the disk holds as little as it may: of files that were not fsynced no data, and, in the last mode, of
    folders that were not fsynced no new names. (What was removed may be gone at once: that is allowed, too.)
    """

    def __init__(self, mode: str, fatal: int) -> None:
        self.mode, self.fatal, self.count = mode, fatal, 0
        self.real = {name: getattr(os, name) for name in CALLS}
        self.paths: dict[int, str] = {}
        self.unsynced_files: dict[int, int] = {}  # descriptor -> a copy of it that outlives closing
        self.unsynced_names: list[tuple[str, Callable[[], object]]] = []  # folder, and how to take the new name back

    def stand_before(self) -> None:
        for name in CALLS:
            setattr(os, name, lambda *given, _name=name, **named: self.call(_name, *given, **named))

    def call(self, name: str, *given: object, **named: object) -> object:
        self.count += 1
        if self.count == self.fatal:
            if name == "write":  # a write that fails may have written a part
                self.real["write"](given[0], given[1][: len(given[1]) // 2])
                self.note(name, given, None)
            self.fail()
        result = self.real[name](*given, **named)
        self.note(name, given, result)
        return result

    def note(self, name: str, given: tuple, result: object) -> None:
        if name == "open":
            self.paths[result] = str(given[0])
            if given[1] & os.O_CREAT:
                self.named(given[0], lambda: os.unlink(given[0]))
        elif name == "write" and given[0] not in self.unsynced_files:
            self.unsynced_files[given[0]] = os.dup(given[0])
        elif name == "fsync":
            self.unsynced_files.pop(given[0], None)
            folder = self.paths[given[0]]
            self.unsynced_names = [entry for entry in self.unsynced_names if entry[0] != folder]
        elif name == "mkdir":
            self.named(given[0], lambda: shutil.rmtree(given[0]))
        elif name in ("rename", "replace"):
            self.named(given[1], lambda: os.rename(given[1], given[0]))

    def named(self, path: object, undo: Callable[[], object]) -> None:
        self.unsynced_names.append((os.path.dirname(path), undo))

    def fail(self) -> None:
        if self.mode == "error":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for name in CALLS:
            setattr(os, name, self.real[name])
        if self.mode != "crash":
            for copy in self.unsynced_files.values():
                os.ftruncate(copy, 0)
        if self.mode == "power cut loses names":
            for _, undo in reversed(self.unsynced_names):
                with suppress(FileNotFoundError):  # its own folder went before it
                    undo()
        os._exit(137)


def prepare(run: Path, scenario: str) -> int:
    """A run before the save of the scenario. Returns the step of that save."""
    run.mkdir()
    if scenario == "first":
        return 100
    for step, loss in ((100, 2.0), (200, None)):
        path = save(run, step)
        if loss:
            checkpoint.mark_best(path, loss)
    return 300 if scenario == "third" else 200


def in_a_fork(mode: str, fatal: int, run: Path, step: int) -> tuple[int, int]:
    """Save, mark and prune in a process that fails at its `fatal`-th call. Returns its exit code and its number of calls."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        disk, code = Disk(mode, fatal), 1
        disk.stand_before()
        try:
            path = save(run, step)
            checkpoint.mark_best(path, 1.0)
            checkpoint.prune(path, 1)
            code = 0
        except CheckpointError as error:
            code = 2 if "No space left on device" in str(error) else 3
        finally:
            disk.real["write"](writer, str(disk.count).encode())
            os._exit(code)
    os.close(writer)
    _, status = os.waitpid(pid, 0)
    with open(reader) as pipe:
        return os.waitstatus_to_exitcode(status), int(pipe.read() or 0)


def check_the_next_start(run: Path, step: int, scenario: str, code: int) -> None:
    """After whatever happened, the run is whole: nothing torn is visible, nothing hidden stays, nothing good is gone."""
    if code == 2 and not any(name.startswith(".") for name in os.listdir(run)):
        pass  # an error has cleared up behind itself already; otherwise the call that failed was the clearing up
    checkpoint.remove_orphans(run)
    assert not [name for name in os.listdir(run) if name.startswith(".")]
    for path in checkpoint.steps(run):
        assert whole(checkpoint.load(path, expected=expected))
    if scenario == "first" and not checkpoint.steps(run):
        return
    newest, lines = checkpoint.newest(run, expected=expected)
    assert lines == [] and newest.step in (step, 200 if scenario != "first" else step)
    assert code != 0 or newest.step == step
    best, lines = checkpoint.best(run, expected=expected)
    assert whole(best) and (lines == [] or scenario == "first")
    save(run, step + 1)  # and it goes on


def enumerate_faults(mode: str, scenario: str, folder: Path) -> int:
    """Fail at the first call, the second ... until a save comes through. Returns the number of calls there are."""
    torch.set_num_threads(1)
    for fatal in range(1, 1000):
        run = folder / f"{fatal}"
        step = prepare(run, scenario)
        before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        code, calls = in_a_fork(mode, fatal, run, step)
        assert code in ((0, 2) if mode == "error" else (0, 137)), (fatal, code)
        if code == 2:
            assert {path: path.read_bytes() for path in before} == before, f"call {fatal} changed an old checkpoint"
        check_the_next_start(run, step, scenario, code)
        shutil.rmtree(run)
        if code == 0 and calls < fatal:
            return calls
    raise AssertionError("a save that never ends")


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("mode", MODES)
def test_a_save_may_fail_at_any_call(mode: str, scenario: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, __file__, mode, scenario, str(tmp_path)], capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30


if __name__ == "__main__":
    print(enumerate_faults(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
