"""Every system call of a save is made to fail, and every byte of a checkpoint to lie: nothing is lost, nothing believed."""

import errno
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import random_weights, saved_state
from torch import Tensor

from chargpt.runs import checkpoint
from chargpt.runs.checkpoint_schema import CheckpointError

MODES = ("crash", "error", "power cut loses data", "power cut loses names")
SCENARIOS = ("first", "third", "again")
CALLS = ("open", "write", "fsync", "rename", "replace", "mkdir", "rmdir", "unlink")
FILES = ("model.safetensors", "training.safetensors", "state.json")


def weights_at(step: int) -> dict[str, Tensor]:
    return {name: torch.full_like(tensor, float(step)) for name, tensor in random_weights(0).items()}


def save(run: Path, step: int) -> Path:
    weights = weights_at(step)
    training = {f"{name}/{moment}": tensor / 3 for name, tensor in weights.items() for moment in ("exp_avg", "exp_avg_sq")}
    return checkpoint.publish(run, weights=weights, training=training, state=saved_state(step))


def whole(found: checkpoint.Checkpoint) -> bool:
    return all(torch.equal(found.weights[name], tensor) for name, tensor in weights_at(found.step).items())


# --- every system call fails in turn --------------------------------------------------------------------------------------


class PowerCut(BaseException):
    """What a save meets when its process or its machine has died: from then on no call does anything."""


class Disk:
    """Stands before the system calls of a save and makes the `fatal`-th one fail, in one of the MODES.

    After a power cut the disk holds as little as it may: of files that were not fsynced no data, and, in the last mode, of
    folders that were not fsynced no new names. What was removed is gone at once: that is allowed, too.
    """

    def __init__(self, mode: str, fatal: int, patch: pytest.MonkeyPatch) -> None:
        self.mode, self.fatal, self.count, self.dead = mode, fatal, 0, False
        self.real = {name: getattr(os, name) for name in CALLS}
        self.real["fsync"] = lambda _: None  # noted below, and only noted
        self.paths: dict[int, str] = {}
        self.unsynced_files: dict[int, int] = {}  # descriptor -> a copy of it that outlives closing
        self.unsynced_names: list[tuple[str, str, Callable[[str], object]]] = []  # before, now, and what takes it back
        for name in CALLS:
            patch.setattr(os, name, lambda *given, _name=name, **named: self.call(_name, *given, **named))

    def call(self, name: str, *given: Any, **named: Any) -> Any:
        if self.dead:
            raise PowerCut
        self.count += 1
        if self.count == self.fatal:
            if name == "write":  # a write that fails may have written a part
                self.real["write"](given[0], given[1][: len(given[1]) // 2])
                self.note(name, given)
            self.fail()
        replaced = Path(given[1]).read_bytes() if name == "replace" and os.path.isfile(given[1]) else None
        result = self.real[name](*given, **named)
        self.note(name, given, result, replaced)
        return result

    def note(self, name: str, given: tuple, result: Any = None, replaced: bytes | None = None) -> None:
        """Remember what of a call is not on the disk before an fsync."""
        if name == "open":
            self.paths[result] = str(given[0])
            if given[1] & os.O_CREAT:
                self.unsynced_names.append(("", str(given[0]), self.real["unlink"]))
        elif name == "write" and given[0] not in self.unsynced_files:
            self.unsynced_files[given[0]] = os.dup(given[0])
        elif name == "fsync":
            os.close(self.unsynced_files.pop(given[0], None) or os.dup(given[0]))
            self.sync_names(self.paths[given[0]])
        elif name == "mkdir":
            self.unsynced_names.append(("", str(given[0]), shutil.rmtree))
        elif name in ("rename", "replace"):
            old, new = map(str, given)

            def undo(path: str) -> None:
                os.rename(path, old)
                if replaced is not None:
                    Path(path).write_bytes(replaced)

            self.unsynced_names.append((old, new, undo))

    def sync_names(self, folder: str) -> None:
        """The names in a folder are on the disk; what lies below one that was renamed has its new path for good."""
        synced = [entry for entry in self.unsynced_names if os.path.dirname(entry[1]) == folder]
        kept = [entry for entry in self.unsynced_names if entry not in synced]
        for old, new, _ in synced:
            if old:
                kept = [(was, re.sub(f"^{re.escape(old)}/", f"{new}/", path), undo) for was, path, undo in kept]
        self.unsynced_names = kept

    def fail(self) -> None:
        if self.mode == "error":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.dead = True
        raise PowerCut

    def after(self) -> None:
        """What the disk shows once it runs again; to be called with the real system calls back in place."""
        for copy in self.unsynced_files.values():
            if self.mode.startswith("power cut"):
                os.ftruncate(copy, 0)
            os.close(copy)
        if self.mode == "power cut loses names":
            for _, path, undo in reversed(self.unsynced_names):
                with suppress(FileNotFoundError):  # removed since
                    undo(path)


def prepare(run: Path, scenario: str) -> int:
    """A run before the save of the scenario. Returns the step of that save."""
    run.mkdir()
    if scenario == "first":
        return 100
    checkpoint.mark_best(save(run, 100), 2.0)
    save(run, 200)
    return 300 if scenario == "third" else 200


def save_on(mode: str, fatal: int, run: Path, step: int) -> tuple[str, int]:
    """Save, mark and prune on a disk that fails at the `fatal`-th call. Returns how it went and the number of calls made."""
    with pytest.MonkeyPatch.context() as patch:
        disk, outcome = Disk(mode, fatal, patch), "died"
        with suppress(PowerCut):
            try:
                path = save(run, step)
                checkpoint.mark_best(path, 1.0)
                checkpoint.prune(path, 1)
                outcome = "saved"
            except CheckpointError as error:
                assert "No space left on device" in str(error)
                outcome = "refused"
    if outcome == "died":
        disk.after()
    return outcome, disk.count


def check_the_next_start(run: Path, step: int, scenario: str, outcome: str) -> None:
    """After whatever happened, the run is whole: nothing torn is visible, nothing hidden stays, nothing good is gone."""
    hidden = [name for name in os.listdir(run) if name.startswith(".")]
    assert outcome != "refused" or not hidden, "an error that is reported has cleared up behind itself"
    checkpoint.remove_orphans(run)
    assert not [name for name in os.listdir(run) if name.startswith(".")]
    for path in checkpoint.steps(run):
        assert whole(checkpoint.load(path))
    if scenario != "first" or checkpoint.steps(run):
        newest, lines = checkpoint.newest(run)
        assert lines == [] and newest.step in (step, 200 if scenario != "first" else step)
        assert outcome != "saved" or newest.step == step
        _, lines = checkpoint.best(run)
        assert lines == [] or scenario == "first"
    save(run, step + 1)  # and it goes on


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("mode", MODES)
def test_a_save_may_fail_at_any_call(
    mode: str, scenario: str, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each third call until a save comes through: three cases together try each call. The nightly tests do by themselves."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the power that is cut here is not the machine's
    outcome, calls = "", 0
    fatal = (MODES.index(mode) + SCENARIOS.index(scenario)) % every + 1 - every
    while calls >= fatal:
        fatal += every
        run = tmp_path / "run"
        step = prepare(run, scenario)
        before = {path: path.read_bytes() for path in run.glob("step-*/*")}
        outcome, calls = save_on(mode, fatal, run, step)
        assert outcome in ("saved", "refused" if mode == "error" else "died"), f"call {fatal}"
        if outcome == "refused":
            assert {path: path.read_bytes() for path in before} == before, f"call {fatal} changed an old checkpoint"
        check_the_next_start(run, step, scenario, outcome)
        shutil.rmtree(run)
    assert outcome == "saved" and fatal > 20


# --- every byte lies ------------------------------------------------------------------------------------------------------


def damaged(data: bytes, kind: str, count: int, chance: random.Random) -> Iterator[bytes]:
    """`count` ways to spoil `data`."""
    for _ in range(count):
        if kind == "one bit":
            place, spoiled = chance.randrange(len(data)), bytearray(data)
            spoiled[place] ^= 1 << chance.randrange(8)
            yield bytes(spoiled)
        elif kind == "cut short":
            yield data[: chance.randrange(len(data))]
        elif kind == "page of zeros":
            start = chance.randrange(len(data))
            end = min(start + chance.choice((512, 4096)), len(data))
            yield data[:start] + bytes(end - start) + data[end:]
        elif kind == "longer":
            yield data + chance.randbytes(chance.randrange(1, 5000))


KINDS = {"one bit": 100, "cut short": 30, "page of zeros": 30, "longer": 20}


def count_silent_loads(path: Path, file: str, kind: str, count: int) -> int:
    """How many of `count` spoiled copies of a file load without an error."""
    intact, silent = (path / file).read_bytes(), 0
    for data in damaged(intact, kind, count, random.Random(f"{file} {kind}")):
        (path / file).write_bytes(data)
        try:
            checkpoint.load(path)
            silent += data != intact
        except CheckpointError as error:
            assert f"{path.name}/{file}" in str(error)
    (path / file).write_bytes(intact)
    checkpoint.load(path)
    return silent


@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", FILES)
def test_no_damage_loads_silently(tmp_path: Path, file: str, kind: str, times: int) -> None:
    assert count_silent_loads(save(tmp_path, 1), file, kind, times * KINDS[kind]) == 0
