"""Which run and which checkpoint a name means, and the model in it."""

import dataclasses
import os
import re
import shutil
from pathlib import Path

import pytest
from helpers import publish_run, random_weights, saved_state

from chargpt.errors import UserError
from chargpt.project import shell_word
from chargpt.runs.checkpoint import keep_best_weights, publish, steps
from chargpt.runs.load import find_checkpoint, find_run
from chargpt.runs.stage import Progress


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return publish_run(tmp_path_factory.mktemp("runs") / "tiny", steps=(500, 1000))


def test_a_run_is_found_by_name_by_path_and_by_being_the_newest(tmp_path, monkeypatch):
    old, new = (publish_run(tmp_path / name) for name in ("old", "new"))
    (tmp_path / "no-run").mkdir()
    for run, time in ((old, 1), (new, 2)):
        os.utime(run / "step-00000500", (time, time))
    assert find_run(None, tmp_path) == find_run("new", tmp_path) == find_run(str(new), tmp_path / "elsewhere") == new
    monkeypatch.chdir(old)
    assert find_run(".", tmp_path) == old and find_run("../new", tmp_path).samefile(new)
    assert find_run("old", tmp_path) == old


@pytest.mark.parametrize("name", ["a" * 256, "é" * 200, "the sea " * 10**5, "a/" * 3000, f"{'a' * 300}/b", "\udce9" * 300])
def test_a_text_in_place_of_a_name_is_one_short_line(name, run):
    for find in (find_run, find_checkpoint):
        with pytest.raises(UserError, match="a text, not the name of a run; give the name") as error:
            find(name, run.parent)
        assert len(str(error.value)) < 200


def test_a_path_into_a_run_is_that_run(run, tmp_path, monkeypatch):
    for inside in ("step-00001000", "step-00001000/model.safetensors", "step-00001000/", "config.yaml"):
        (run / "config.yaml").touch()
        assert find_run(str(run / inside), tmp_path) == run
    for inside, step in ("", 500), ("/config.yaml", 500), ("/step-00001000/", 1000), ("/step-00001000/model.safetensors", 1000):
        assert find_checkpoint(f"{run}{inside}", Path())[0].step == step
    monkeypatch.chdir(run / "step-00000500")
    assert find_run("state.json", tmp_path) == find_run("..", tmp_path) == run
    for unknown in ("nothing", str(run / "nothing"), str(tmp_path / "nothing")):
        with pytest.raises(UserError, match="no run of that name or path"):
            find_run(unknown, tmp_path)
    for gone in ("step-00000999", "step-00000999/", "step-00000999/model.safetensors"):
        with pytest.raises(UserError, match=f"{gone}: no such checkpoint; 2 in this run, use step-00000500, step-00001000"):
            find_checkpoint(f"{run}/{gone}", Path())
    (tmp_path / "early").mkdir()
    (tmp_path / "early" / "config.yaml").touch()
    with pytest.raises(UserError, match="early: .*no checkpoint; train it again"):
        find_run("early", tmp_path)


@pytest.mark.parametrize(("evaluated", "used"), [(0, 20), (10, 0)])
def test_a_run_that_was_stopped_before_its_first_evaluation_writes_with_what_it_has_learned(tmp_path, evaluated, used):
    run, loss = tmp_path / "run", 4.0
    run.mkdir()
    for step in (0, 20):
        progress = Progress(
            step=step, evaluated=min(step, evaluated), val_loss=loss, best_loss=loss, lowest_loss=loss, best_step=0
        )
        state = dataclasses.replace(saved_state(step), progress=progress)
        publish(run, weights=random_weights(step), training={}, state=state)
    checkpoint, warnings = find_checkpoint(str(run), tmp_path)
    assert checkpoint.step == used
    assert any("step-00000020" in line and "validation loss was not measured" in line for line in warnings) == bool(used)
    assert keep_best_weights(run) == [] and [path.name for path in steps(run)] == [f"step-{used:08}"]


@pytest.mark.parametrize("given", ["out nano", "out nano/ckpt.pt"])
def test_a_checkpoint_of_nanogpt_is_an_error_that_says_how_to_make_a_run_of_it(tmp_path, given):
    (tmp_path / "out nano").mkdir()
    (tmp_path / "out nano" / "ckpt.pt").write_bytes(b"PK")
    command = f"python -m chargpt import {shell_word(f'{tmp_path}/out nano')} --run NAME"
    for find in (find_run, find_checkpoint):
        with pytest.raises(UserError, match=f"a checkpoint of nanoGPT; make a run of it with {re.escape(command)}$"):
            find(f"{tmp_path}/{given}", tmp_path)


def test_an_unknown_name_is_answered_with_a_question_or_a_few_runs(tmp_path):
    def what_to_do(name: str) -> str:
        with pytest.raises(UserError) as caught:
            find_run(name, tmp_path)
        return str(caught.value).partition("; ")[2]

    publish_run(tmp_path / "run0")
    for number in range(1, 5):
        shutil.copytree(tmp_path / "run0", tmp_path / f"run{number}")
    assert what_to_do("rum0") == "did you mean run0?"
    assert what_to_do("poems") == "use one of run0, run1, run2, run3, run4"
    shutil.copytree(tmp_path / "run0", tmp_path / "run5")
    assert what_to_do("poems") == "use one of run0, run1, run2, run3, run4; python -m chargpt runs lists all"
