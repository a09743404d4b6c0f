"""The schema of state.json, and its checksum: what is written comes back, all else is refused."""

import dataclasses
import functools
import hashlib
import json
import operator
from pathlib import Path

import pytest
from helpers import publish_run, saved_state

from chargpt.runs import checkpoint_schema
from chargpt.runs.checkpoint import newest
from chargpt.runs.checkpoint_schema import (
    ADDED,
    FORMAT,
    OLDEST,
    CheckpointError,
    SavedState,
    UnreadableError,
    check_format,
    seal,
    unseal,
)
from chargpt.runs.stage import Length, Models, Progress, Stage, Start
from chargpt.settings import KEYS


def through_json(state: SavedState) -> dict:
    return json.loads(json.dumps(state.to_json()))


def plain(step: int = 40) -> dict:
    """A valid state as JSON gives it."""
    return through_json(saved_state(step, seconds_left=12.5))


def test_a_state_comes_back_through_json():
    reached = dataclasses.replace(
        saved_state(40).progress, first_step=60, seconds=7.5, first_loss=4.0, best_sample="a\0\u2028中", train_loss=1.25
    )
    sources = {"optim.weight_decay": "chosen", "model.n_layer": "run", "train.max_steps": "user", "data.split": "preset"}
    settings = dataclasses.replace(saved_state(40).settings, sources=sources, reasons={"optim.weight_decay": "9 epochs"})
    models = Models(count=4, is_decided=False, why="it may", seconds=20.5, epochs=30.0)
    stage = Stage(
        number=3,
        models=models,
        start=Start(name="sea", is_run=True),
        length=Length(steps=90, warmup=4, interval=7, since=60, decayed=0.25),
        changed=20,
    )
    known = saved_state(40, progress=reached, settings=settings, stage=stage, seconds_left=12.5)
    for state in (known, saved_state(40), saved_state(0, val_loss=None)):
        assert SavedState.from_json(through_json(state)) == state


def test_a_new_setting_says_what_older_runs_had_in_its_place():
    """A saved run without a setting gets its default today."""
    here = Path(__file__).with_name("settings.json")
    known = json.loads(here.read_text(encoding="utf-8"))
    assert (known["format"], known["settings"]) == (FORMAT, KEYS), (
        "A run that was saved before a setting existed is resumed with the default of the setting. Do old runs train to the "
        "same bits with that default? If not, let FORMAT grow by one, and read what they had from the format before. "
        f"Then change {here.name} to format {FORMAT} and these settings:\n{json.dumps(KEYS)}"
    )


@pytest.mark.parametrize(
    ("written_as", "problem"),
    [
        *((number, f"format {number}, .*; the last commit that reads it is 44363133$") for number in range(1, OLDEST)),
        *((wrong, "damaged, it names no format; ") for wrong in (0, -1, True, "1", None, 9.0)),
        *((later, f"of a later format than {FORMAT}, .*; update the program$") for later in (FORMAT + 1, 10**100)),
    ],
)
def test_another_format_is_one_line(written_as, problem, tmp_path):
    with pytest.raises(CheckpointError, match=f"^state.json: {problem}"):
        check_format(written_as, Path("state.json"))


def without(state, added):
    """What a state of an older format does not have is left out: the entries that a later one `added`."""
    kept = {key: value for key, value in state.items() if key not in added or isinstance(added[key], dict)}
    return {key: without(value, added[key]) if key in added else value for key, value in kept.items()}


@pytest.mark.parametrize("number", range(OLDEST, FORMAT))
def test_every_format_since_the_first_promised_one_is_read(number, tmp_path):
    """What it did not have is what the table says."""
    path = publish_run(tmp_path / "run", steps=(500,)) / "step-00000500" / "state.json"
    state, files = unseal(path)
    added = functools.reduce(operator.or_, (entries for later, entries in ADDED.items() if later > number))
    older = without(through_json(state), added)
    assert (older != through_json(state)) == bool(added)
    body = json.dumps({"format": number, "files": files, "state": older}, indent=1).encode()[2:]
    path.write_bytes(f'{{"sha256": "{hashlib.sha256(body).hexdigest()}",\n'.encode() + body)
    read, others = unseal(path)
    assert (through_json(read), others) == (through_json(state), files)  # the run has what stands for it


def test_a_run_of_an_older_format_is_refused_and_stays(tmp_path, monkeypatch):
    """Also if an earlier checkpoint is of the format of now: what was trained last decides."""
    run = publish_run(tmp_path / "run", steps=(500, 1000))
    path = run / "step-00001000" / "state.json"
    saved = unseal(path)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_schema, "FORMAT", 8)
        path.write_bytes(seal(*saved, path))
    with pytest.raises(UnreadableError, match="state.json: format 8, .* the last commit that reads it is 44363133$"):
        newest(run)
    assert path.is_file()


@pytest.mark.parametrize("name", sorted(plain()))
def test_every_entry_is_needed_and_no_other_is_accepted(name):
    for state in ({key: value for key, value in plain().items() if key != name}, {**plain(), f"{name}2": 1}, None, []):
        with pytest.raises(ValueError, match="keys"):
            SavedState.from_json(state)


WRONG = {
    "config": [None, {"model": {"heads": 2}}, {"train": {"seed": "x"}}],
    "tokenizer": [None, {"characters": "ba"}],
    "texts": [None, "poems.txt", [1], ["a\0b"], ["x" * 100_001]],
    "fingerprint": [None, "", "../../etc", "0" * 63, "G" * 64],
    "environment": [None, [], {"a": None}, {"a": 1.5}, {"a": "x" * 100_001}],
    "seconds_left": [-1, "soon", 10**400, True],
    "progress": [None, [], {}],
    "sources": [None, [], {"model.heads": "user"}, {"model.n_layer": 1}, {"model": "user"}],
    "reasons": [None, {"model.heads": "because"}, {"model.n_layer": 1}],
    "stage": [None, 1, {}],
    "model_source": [None, "", "abc", "0" * 63, 1],
    "model_loss": [-1.0, "low", True, 10**400],
    "progress.step": [-1, None, True, 1.5, "40", 10**15, 10**30],
    "progress.evaluated": [-1, 41, 10**30, True, None],
    "progress.val_loss": [None, -0.1, 10**400, "low", True, 1.4],  # 1.4: below the best loss
    "progress.best_loss": [None, -1, 10**400, 1.6],
    "progress.lowest_loss": [None, -1, 10**400, 1.55],  # 1.55: above the best loss
    "progress.best_step": [-5, None, 41, 0.5],
    "progress.without_gain": [-1, None, 41, 0.5, True],
    "progress.loss_sum": [10**400, -1, None, "0"],
    "progress.loss_count": [-1, 41, None, 0.5],
    "progress.skipped": [None, {}, [-1], ["1"], [0.5], [10**30]],
    "progress.first_step": [-1, None, True, 1.5, 10**15],
    "progress.seconds": [-1, None, "1", 10**400, True],
    "progress.first_loss": [-0.1, 10**400, "low", True],
    "progress.train_loss": [-0.1, 10**400, "low", True],
    "progress.best_sample": [None, 1, ["a"], "a" * 100_001],
    "stage.number": [None, -1, 0, 11, True, 1.0, "1"],
    "stage.start": ["sea", {"name": "sea"}, {"name": "sea", "is_run": 1}, *({"name": n, "is_run": True} for n in ("", "../a"))],
    "stage.models.count": [None, 0, 11, True],
    "stage.models.is_decided": [None, 0, "no"],
    "stage.models.seconds": [-1, "1", True],
    "stage.models.why": [None, 1],
    "stage.length.steps": [None, 0, -1, 1.5, 10**15],
    "stage.length.warmup": [None, -1, True],
    "stage.length.interval": [None, 0, -1],
    "stage.length.since": [None, -1, 0.5],
    "stage.length.decayed": [None, -0.1, 1.5, "half"],
    "stage.changed": [None, -1, True],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_refused(name):
    *parts, key = name.split(".")
    for value in WRONG[name]:
        state = plain()
        functools.reduce(operator.getitem, parts, state)[key] = value
        with pytest.raises(ValueError):
            SavedState.from_json(state)


@pytest.mark.parametrize("reached", [{"first_loss": 4.0}, {"best_sample": "a"}])
def test_a_run_that_was_not_evaluated_has_reached_nothing(reached):
    state = through_json(saved_state(0, val_loss=None))
    with pytest.raises(ValueError, match="progress"):
        SavedState.from_json(state | {"progress": state["progress"] | reached})


def test_progress_keeps_the_best_evaluation_and_the_mean_loss():
    progress = Progress()
    for step, loss in ((0, 3.0), (10, 1.0), (20, 2.0)):
        progress.step = step
        progress.record_evaluation(loss, sample=f"after {step}")
    assert (progress.first_loss, progress.best_sample) == (3.0, "after 10")
    assert (progress.evaluated, progress.val_loss, progress.best_step, progress.best_loss) == (20, 2.0, 10, 1.0)
    assert progress.without_gain == 1
    progress.loss_sum, progress.loss_count = 6.0, 4
    assert progress.take_mean_loss() == progress.train_loss == 1.5 and progress.loss_count == 0
    progress.record_evaluation(0.5, sample="a" * 100_001)
    assert progress.best_sample == "" and progress.without_gain == 0  # a sample too long to be kept, and a new best loss
    copied = progress.copy()
    copied.skipped.append(1)
    assert progress.skipped == []


def test_small_rises_do_not_add_up():
    """`checkpoint.best=last` allows a loss that is a little above the lowest one, not above the one before."""
    progress = Progress()
    for step, loss in enumerate((3.0, 1.0, 1.06, 1.12, 1.05, 1.099, 1.101)):
        progress.step = step
        progress.record_evaluation(loss, tolerance=0.1)
    assert (progress.best_step, progress.best_loss, progress.lowest_loss) == (5, 1.099, 1.0)
    assert progress.without_gain == 1
    progress.step = 7
    progress.record_evaluation(1.05)  # resumed with checkpoint.best=lowest
    assert (progress.best_step, progress.best_loss, progress.lowest_loss) == (7, 1.05, 1.0)
    state = dataclasses.replace(saved_state(7), progress=progress)
    assert SavedState.from_json(json.loads(json.dumps(state.to_json()))) == state
