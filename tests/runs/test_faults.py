"""Every system call of a save is made to fail, and every byte of a checkpoint to lie: nothing is lost, nothing believed."""

import functools
import os
import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from faulty_disk import MODES, Disk, PowerCut
from helpers import random_weights, saved_state
from torch import Tensor

from chargpt.errors import NoSpace
from chargpt.files import remove_left_behind
from chargpt.runs import checkpoint
from chargpt.runs.checkpoint_schema import CheckpointError
from chargpt.runs.run import OWN

SCENARIOS = ("first", "third", "again")
FILES = ("model.safetensors", "training.safetensors", "state.json")


@functools.cache
def weights_at(step: int) -> dict[str, Tensor]:
    return {name: torch.full_like(tensor, float(step)) for name, tensor in random_weights(0).items()}


def save(run: Path, step: int) -> Path:
    weights = weights_at(step)
    training = {f"{name}/{moment}": tensor / 3 for name, tensor in weights.items() for moment in ("exp_avg", "exp_avg_sq")}
    return checkpoint.publish(run, weights=weights, training=training, state=saved_state(step))


def whole(found: checkpoint.Checkpoint) -> bool:
    return all(torch.equal(found.weights[name], tensor) for name, tensor in weights_at(found.step).items())


# --- every system call fails in turn --------------------------------------------------------------------------------------


def prepare(run: Path, scenario: str) -> int:
    """A run before the save of the scenario. Returns the step of that save."""
    run.mkdir()
    if scenario == "first":
        return 100
    save(run, 100)
    save(run, 200)
    return 300 if scenario == "third" else 200


def save_on(mode: str, fatal: int, run: Path, step: int) -> tuple[str, int]:
    """Save and prune on a disk that fails at the `fatal`-th call. Returns how it went and the number of calls made."""
    with pytest.MonkeyPatch.context() as patch:
        disk, outcome = Disk(mode, fatal, patch), "died"
        with suppress(PowerCut):
            try:
                checkpoint.prune(save(run, step), 1, best_step=step)
                outcome = "saved"
            except NoSpace as error:
                assert "No space left on device" in str(error)
                outcome = "refused"
    if outcome == "died":
        disk.after()
    return outcome, disk.count


def check_the_next_start(run: Path, step: int, scenario: str, outcome: str) -> None:
    """After whatever happened, the run is whole: nothing torn is visible, nothing hidden stays, nothing good is gone."""
    hidden = [name for name in os.listdir(run) if name.startswith(".")]
    assert outcome != "refused" or not hidden, "an error that is reported has cleared up behind itself"
    remove_left_behind(run, OWN)
    assert not [name for name in os.listdir(run) if name.startswith(".")]
    for path in checkpoint.steps(run):
        assert whole(checkpoint.load(path))
    if scenario != "first" or checkpoint.steps(run):
        newest, lines = checkpoint.newest(run)
        assert lines == [] and newest.step in (step, 200 if scenario != "first" else step)
        assert outcome != "saved" or newest.step == step
        assert checkpoint.best(run)[1] == []
    save(run, step + 1)  # and it goes on


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("mode", MODES)
def test_a_save_may_fail_at_any_call(
    mode: str, scenario: str, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each fourth call until a save comes through: the four modes together try each one. Each nightly test does alone."""
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
    assert outcome == "saved" and fatal > 16


# --- every byte lies ------------------------------------------------------------------------------------------------------


def damaged(data: bytes, kind: str, chance: random.Random) -> bytes:
    """`data`, spoiled in one way."""
    place = chance.randrange(len(data))
    end = min(place + chance.choice((512, 4096)), len(data))
    return {
        "one bit": data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :],
        "cut short": data[:place],
        "page of zeros": data[:place] + bytes(end - place) + data[end:],
        "longer": data + chance.randbytes(chance.randrange(1, 5000)),
    }[kind]


@pytest.mark.parametrize("file", FILES)
def test_no_damage_loads_silently(tmp_path: Path, file: str) -> None:
    path, chance = save(tmp_path, 1), random.Random(file)
    intact = (path / file).read_bytes()
    for kind in ["one bit", "cut short", "page of zeros", "longer"] * 15:
        spoiled = damaged(intact, kind, chance)
        (path / file).write_bytes(spoiled)
        if spoiled != intact:
            with pytest.raises(CheckpointError, match=f"{path.name}/{file}"):
                checkpoint.load(path)
    (path / file).write_bytes(intact)
    checkpoint.load(path)
