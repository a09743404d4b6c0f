"""The schema of state.json, and its checksum: what is written comes back, all else is refused, older formats are read."""

import dataclasses
import json
import os
from hashlib import sha256
from pathlib import Path

import pytest
from helpers import saved_state

from chargpt.config import Config, to_dict
from chargpt.runs.checkpoint_schema import (
    FORMAT,
    JSON_LIMIT,
    CheckpointError,
    Progress,
    SavedState,
    read_bounded,
    seal,
    unseal,
)


def plain(step: int = 40) -> dict:
    """A valid state as JSON gives it."""
    return json.loads(json.dumps(saved_state(step, seconds_left=12.5).to_json()))


def known_settings() -> list[str]:
    return [f"{section}.{name}" for section, values in to_dict(Config()).items() for name in values]


def test_a_state_comes_back_through_json():
    reached = dataclasses.replace(
        saved_state(40).progress, first_step=60, seconds=7.5, first_loss=4.0, best_sample="a\0\u2028中", train_loss=1.25
    )
    sources = {"optim.weight_decay": "chosen", "model.n_layer": "run", "train.max_steps": "user", "data.split": "preset"}
    settings = dataclasses.replace(saved_state(40).settings, sources=sources, reasons={"optim.weight_decay": "9 epochs"})
    state = saved_state(40, progress=reached, settings=settings, stage=3)
    assert SavedState.from_json(json.loads(json.dumps(state.to_json()))) == state
    assert SavedState.from_json(plain()) == saved_state(40, seconds_left=12.5)
    fresh = saved_state(0, val_loss=None)
    assert SavedState.from_json(json.loads(json.dumps(fresh.to_json()))) == fresh


def before_8(state: dict, **train: object) -> dict:
    """The state as format 7 had it."""
    older = json.loads(json.dumps({name: value for name, value in state.items() if name != "reasons"}))
    several = {"teachers": "", "student_minutes": 0.0, "student_teachers": 1}
    del older["config"]["train"]["teacher_minutes"]
    older["config"]["train"] |= several | train
    return older


@pytest.mark.parametrize(
    ("train", "environment", "stage"),
    [
        ({}, {}, 1),
        ({"teachers": "/runs/a/step-00000005"}, {"teachers": "0123456789ab"}, 1),  # it has copies of its teachers
        ({"teachers": "/runs/a/step-00000005"}, {}, 0),
        ({"student_minutes": 2.0, "student_teachers": 3}, {}, 0),
    ],
)
def test_format_7_is_still_read_and_a_run_that_another_one_was_to_follow_is_known(train, environment, stage):
    older = before_8(plain(), **train)
    older["environment"] |= environment
    older["sources"] = {"train.teachers": "user", "train.student_minutes": "chosen", "train.max_steps": "user"}
    state = SavedState.from_json(older, written_as=7)
    assert (state.stage, state.config.train.teachers, state.config.train.teacher_minutes) == (stage, 0, 0.0)
    assert state.settings.sources == {"train.max_steps": "user"} and not state.settings.reasons


def before_7(state: dict) -> dict:
    """The state as format 6 had it."""
    state = {name: value for name, value in before_8(state).items() if name not in ("sources", "stage")}
    new = ("first_step", "seconds", "first_loss", "best_sample", "train_loss")
    return {**state, "progress": {name: value for name, value in state["progress"].items() if name not in new}}


def test_format_6_is_still_read_and_what_is_no_default_was_set_by_the_user():
    older = before_7(plain())
    state = SavedState.from_json(older, written_as=6)
    changed = ("model.n_layer", "model.n_head", "model.n_embd", "model.block_size", "model.bias", "train.batch_size")
    assert state.settings.sources == dict.fromkeys(changed, "user")
    assert state == dataclasses.replace(saved_state(40, seconds_left=12.5), settings=state.settings)
    older["config"]["train"]["start"], older["config"]["model"]["dropout"] = "english", 0.25
    shape = {key for key in known_settings() if key.startswith("model.") and key != "model.dropout"}
    found = SavedState.from_json(older, written_as=6).settings.sources
    assert {key for key, source in found.items() if source == "run"} == shape
    assert {key for key, source in found.items() if source == "user"} == {"model.dropout", "train.batch_size", "train.start"}


def test_format_4_is_still_read_and_torch_computes_its_steps():
    older = before_7(plain())
    del older["progress"]["lowest_loss"]
    del older["config"]["runtime"]["step"]
    state = SavedState.from_json(older, written_as=4)
    assert state.config.runtime.step == state.environment["step"] == "torch"


@pytest.mark.parametrize(("chunks", "more"), [(None, {}), (1, {}), (0, {}), (4, {"processes": "with train.chunks=4"})])
def test_a_run_of_several_chunks_is_of_another_environment(chunks, more):
    older = before_7(plain())
    older["environment"] = {"threads": 2}
    older["config"]["train"] |= {} if chunks is None else {"chunks": chunks}
    older["config"]["runtime"]["timeout"] = 300
    assert SavedState.from_json(older, written_as=6).environment == {"threads": 2, **more}


def test_a_new_setting_says_what_older_runs_had_in_its_place():
    """A saved run without a setting gets its default today."""
    here = Path(__file__).with_name("settings.json")
    known = json.loads(here.read_text(encoding="utf-8"))
    now = known_settings()
    assert (known["format"], known["settings"]) == (FORMAT, now), (
        "A run that was saved before a setting existed is resumed with the default of the setting. Do old runs train to the "
        "same bits with that default? If not, let FORMAT grow by one, and write what they had into a function of MIGRATIONS: "
        f"_from_format_4 is the example. Then change {here.name} to format {FORMAT} and these settings:\n{json.dumps(now)}"
    )


@pytest.mark.parametrize("written_as", [0, FORMAT + 1, True, "1", None, 1.0])
def test_an_unknown_format_is_refused(written_as):
    with pytest.raises(ValueError, match="format"):
        SavedState.from_json(plain(), written_as=written_as)


@pytest.mark.parametrize("state", [{}, None, [], {"config": 1}])
def test_what_is_no_state_is_refused(state):
    with pytest.raises(ValueError):
        SavedState.from_json(state)


@pytest.mark.parametrize("name", sorted(plain()))
def test_every_entry_is_needed_and_no_other_is_accepted(name):
    with pytest.raises(ValueError, match="keys"):
        SavedState.from_json({key: value for key, value in plain().items() if key != name})
    with pytest.raises(ValueError, match="keys"):
        SavedState.from_json({**plain(), f"{name}2": 1})


WRONG = {
    "config": [None, {"model": {"heads": 2}}, {"train": {"seed": "x"}}],
    "tokenizer": [None, {"characters": "ba"}],
    "texts": [None, "poems.txt", [1], ["a\0b"], ["x" * 100_000]],
    "fingerprint": [None, "", "../../etc", "0" * 63, "G" * 64],
    "environment": [None, [], {"a": None}, {"a": 1.5}, {"a": "x" * 100_000}],
    "seconds_left": [-1, "soon", 10**400, True],
    "progress": [None, [], {}],
    "sources": [None, [], {"model.heads": "user"}, {"model.n_layer": "default"}, {"model.n_layer": 1}, {"model": "user"}],
    "stage": [None, -1, 11, True, 1.0, "1"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_wrong_value_is_refused(name, value):
    with pytest.raises(ValueError):
        SavedState.from_json({**plain(), name: value})


WRONG_PROGRESS = {
    "step": [-1, None, True, 1.5, "40", 10**15, 10**30],
    "evaluated": [-1, 41, 10**30, True, None],
    "val_loss": [None, -0.1, 10**400, "low", True, 1.4],  # 1.4: below the best loss
    "best_loss": [None, -1, 10**400, 1.6],
    "lowest_loss": [None, -1, 10**400, 1.55],  # 1.55: above the best loss
    "best_step": [-5, None, 41, 0.5],
    "without_gain": [-1, None, 41, 0.5, True],
    "loss_sum": [10**400, -1, None, "0"],
    "loss_count": [-1, 41, None, 0.5],
    "skipped": [None, {}, [-1], ["1"], [0.5], [10**30]],
    "first_step": [-1, None, True, 1.5, 10**15],
    "seconds": [-1, None, "1", 10**400, True],
    "first_loss": [-0.1, 10**400, "low", True],
    "train_loss": [-0.1, 10**400, "low", True],
    "best_sample": [None, 1, ["a"], "a" * 100_001],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG_PROGRESS.items() for value in values])
def test_a_wrong_progress_is_refused(name, value):
    state = plain()
    state["progress"][name] = value
    with pytest.raises(ValueError, match="progress"):
        SavedState.from_json(state)


@pytest.mark.parametrize(("name", "value"), [("first_loss", 4.0), ("best_sample", "a")])
def test_a_run_that_was_not_evaluated_has_reached_nothing(name, value):
    state = json.loads(json.dumps(saved_state(0, val_loss=None).to_json()))
    state["progress"][name] = value
    with pytest.raises(ValueError, match="progress"):
        SavedState.from_json(state)


def test_a_source_keeps_up_with_the_name_of_its_setting():
    state = plain() | {"sources": {"train.second_run_gap": "chosen", "train.chunks": "user"}}
    assert SavedState.from_json(state).settings.sources == {"train.student_gap": "chosen"}


def test_a_sample_too_long_to_be_kept_is_not_cut():
    progress = Progress()
    progress.record_evaluation(1.0, sample="a" * 100_001)
    assert progress.best_sample == ""


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


DOCUMENT = {"a": [1, 2.5, None, "é中"], "b": {}}


def test_a_document_comes_back(tmp_path):
    path = tmp_path / "state.json"
    path.write_bytes(seal(DOCUMENT, path))
    assert unseal(path) == DOCUMENT
    assert json.loads(path.read_text())["sha256"]  # plain JSON for every other tool


def test_numbers_that_are_not_finite_are_neither_written_nor_read(tmp_path):
    with pytest.raises(ValueError):
        seal({"loss": float("nan")}, tmp_path / "x")
    path = tmp_path / "state.json"
    sealed = seal({"loss": 123456}, path)
    body = sealed.split(b"\n", 1)[1].replace(b"123456", b"1e9999")
    path.write_bytes(f'{{"sha256": "{sha256(body).hexdigest()}",\n'.encode() + body)
    with pytest.raises(CheckpointError, match="1e9999"):
        unseal(path)


def test_reading_is_bounded_and_does_not_wait(tmp_path):
    with pytest.raises(CheckpointError, match="more than"):
        seal({"x": "a" * JSON_LIMIT}, tmp_path / "x")
    (tmp_path / "large").write_bytes(b"x" * 100)
    assert read_bounded(tmp_path / "large", limit=100) == b"x" * 100
    with pytest.raises(CheckpointError, match="100 bytes"):
        read_bounded(tmp_path / "large", limit=99)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        read_bounded(tmp_path / "pipe", limit=99)
