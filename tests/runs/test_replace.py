"""A run that takes the place of another, and one that is removed: a kill at any moment leaves a whole run under the name."""

import contextlib
import itertools
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faulty_disk import MODES, Disk, PowerCut
from helpers import logged, publish_run, random_weights, saved_state
from programs import DEVNULL

from chargpt.commands import remove
from chargpt.errors import UserError
from chargpt.program import run_program
from chargpt.runs import run as runs
from chargpt.runs.checkpoint import best, publish, steps
from chargpt.runs.load import find_run
from chargpt.runs.run import Run, new_folder, new_run, settle

OLD, NEW = 500, 7  # steps


@pytest.fixture
def checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(remove, "project_root", lambda: tmp_path)
    publish_run(tmp_path / "checkpoints" / "poems", steps=(OLD,))
    return tmp_path / "checkpoints"


def overwriting(checkpoints: Path) -> Run:
    return new_run(new_folder("poems", checkpoints, overwrite=True), checkpoints, overwrite=True)


def save(run: Run, step: int = NEW, **changes: object) -> list[str]:
    return run.save(saved_state(step, **changes), weights=random_weights(step), training={})


def step_of(name: str, checkpoints: Path) -> int:
    """The step of a run of this name, all of whose bytes are right."""
    checkpoint, problems = best(find_run(name, checkpoints))
    assert not problems
    return checkpoint.step


def test_a_run_takes_the_place_of_another_with_its_first_evaluation_after_step_0(checkpoints):
    run = overwriting(checkpoints)
    for step, val_loss in ((0, 1.5), (3, None)):  # none of them has both learned and been tried
        assert save(run, step, val_loss=val_loss) == [] and run.name(checkpoints) == run.folder.name == "poems.new"
    assert step_of("poems", checkpoints) == OLD and run.home == checkpoints / "poems"
    with pytest.raises(UserError, match="another process is training this run"):
        Run(checkpoints / "poems")
    assert save(run) == [] and run.folder == run.place == checkpoints / "poems" == run.checkpoint.parent
    assert os.listdir(checkpoints) == ["poems"] and step_of("poems", checkpoints) == NEW
    with pytest.raises(UserError, match="another process is training this run"):
        Run(checkpoints / "poems")
    assert save(run, 8) == [] and len(steps(run.folder)) > 1


@pytest.mark.parametrize(("step", "val_loss", "is_refused"), [(0, 1.5, False), (3, None, False), (3, 1.5, True)])
def test_a_run_that_failed_before_it_learned_anything_begins_again(checkpoints, step, val_loss, is_refused):
    begun, state = publish_run(checkpoints / "poems.new", steps=()), saved_state(step, val_loss=val_loss, fingerprint="1" * 64)
    publish(begun, weights=random_weights(step), training={}, state=state)
    training = Run(begun)
    with pytest.raises(UserError, match="a run of this name" if is_refused else "another process is training this run"):
        overwriting(checkpoints)
    del training
    with pytest.raises(UserError) if is_refused else contextlib.nullcontext():
        assert not steps(overwriting(checkpoints).folder)
    assert bool(steps(begun)) == is_refused and step_of("poems", checkpoints) == OLD


def test_on_windows_and_without_an_evaluation_it_waits_until_no_file_is_open(checkpoints, monkeypatch):
    monkeypatch.setattr(runs, "WINDOWS", True)
    run = overwriting(checkpoints)
    assert save(run) == [] and step_of("poems", checkpoints) == OLD and step_of("poems.new", checkpoints) == NEW
    assert run.take_place() == [] and step_of("poems", checkpoints) == NEW and os.listdir(checkpoints) == ["poems"]


def at_each_call(checkpoints: Path, mode: str, monkeypatch: pytest.MonkeyPatch, prepare, act) -> Iterator[object]:
    """What `act`, given what `prepare` returns, returns on a disk that fails at each call in turn, one after the other."""
    kept = checkpoints.with_name("kept")
    shutil.copytree(checkpoints, kept)
    for fatal in itertools.count(1):
        prepared, returned = prepare(), None
        with monkeypatch.context() as patch:
            disk = Disk(mode, fatal, patch)
            with contextlib.suppress(PowerCut, UserError):
                returned = act(prepared)
        disk.after()
        del prepared  # with its locks
        if disk.count < fatal:
            assert fatal > 6
            return
        yield returned
        shutil.rmtree(checkpoints)
        shutil.copytree(kept, checkpoints)


@pytest.mark.parametrize("mode", MODES)
def test_a_kill_at_any_call_of_the_exchange_leaves_a_whole_run_of_that_name(checkpoints, mode, monkeypatch):
    def saved() -> Run:
        run = overwriting(checkpoints)
        with monkeypatch.context() as patch:
            patch.setattr(Run, "take_place", lambda _: [])
            save(run)
        return run

    seen = set()
    for problems in at_each_call(checkpoints, mode, monkeypatch, saved, Run.take_place):
        found = step_of("poems", checkpoints)
        seen.add(found)
        assert mode != "error" or found == NEW or "poems: not replaced (No space" in problems[0]
        if (checkpoints / "poems.new").exists():  # it is never deleted but by the user
            assert (found, step_of("poems.new", checkpoints)) == (OLD, NEW)
            with pytest.raises(
                UserError,
                match="poems.new: a run of this name exists.* --run poems.new, .* poems-2, or remove it with .*poems.new$",
            ):
                overwriting(checkpoints)
            assert remove.main(["poems.new", "--yes"]) == 0
        assert save(overwriting(checkpoints)) == [] and os.listdir(checkpoints) == ["poems"]  # nothing is left behind
    assert seen == {OLD, NEW}


@pytest.mark.parametrize("mode", ["crash", "error"])
def test_a_kill_at_any_call_of_a_removal_leaves_the_whole_run_or_nothing(checkpoints, mode, monkeypatch):
    publish_run(checkpoints / "poems.new")  # the name of a user, and not that of a run that replaces another
    monkeypatch.setattr(remove, "lock_run", lambda folder: None)
    left = set()
    for _ in at_each_call(checkpoints, mode, monkeypatch, list, lambda _: remove.main(["poems", "--yes"])):
        settle(checkpoints / "poems")
        assert steps(checkpoints / "poems.new")
        left.add((checkpoints / "poems").exists())
        assert not (checkpoints / "poems").exists() or step_of("poems", checkpoints) == OLD
    assert left == {True, False}


def test_what_is_no_run_and_what_is_trained_is_not_replaced(checkpoints):
    (checkpoints / "thesis").mkdir()
    (checkpoints / "thesis" / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match="thesis: this folder exists and holds no checkpoint"):
        new_folder("thesis", checkpoints, overwrite=True)
    (publish_run(checkpoints / "noted") / "notes.md").write_text("mine")
    for do in (lambda: new_folder("noted", checkpoints, overwrite=True), lambda: remove.main(["poems", "noted", "--yes"])):
        with pytest.raises(UserError, match="noted: notes.md in this folder is not of the run; move it"):
            do()
    training = Run(checkpoints / "poems")
    for do in (lambda: new_folder("poems", checkpoints, overwrite=True), lambda: remove.main(["poems", "--yes"])):
        with pytest.raises(UserError, match="another process is training this run"):
            do()
    del training
    publish_run(checkpoints / "own.new")  # the name of a user, who has no run "own"
    assert new_folder("own", checkpoints, overwrite=True) == checkpoints / "own" and step_of("own.new", checkpoints) == OLD


@pytest.mark.parametrize(
    ("typed", "is_left"), [("y\n", False), ("yes\n", False), ("n\n", True), ("\n", True), ("", True), (None, True)]
)
def test_a_run_is_removed_if_a_person_says_yes(checkpoints, monkeypatch, capsys, typed, is_left):
    class Typed:
        isatty, readline = (lambda _: typed is not None), (lambda _: typed)

    monkeypatch.setattr("sys.stdin", Typed())
    publish_run(checkpoints / "other")
    assert run_program(lambda: remove.main(["poe*"])) == (2 if typed is None else 0)
    out, err = capsys.readouterr()
    assert (checkpoints / "poems").exists() == is_left and (checkpoints / "other").exists()
    if typed is None:
        what = "needs a terminal to ask about 1 run with all checkpoints; add --yes to delete without a question"
        assert err == f"error: remove: {what}\n"
    else:
        assert "poems.txt" in out and "Delete 1 run with all checkpoints? [y/N]" in out


def test_only_a_whole_run_or_what_is_left_of_one_is_removed(checkpoints, monkeypatch):
    monkeypatch.chdir(checkpoints.parent)
    publish(checkpoints / "poems", weights=random_weights(OLD), training={}, state=saved_state(OLD, val_loss=None))
    shutil.copytree(checkpoints / "poems", checkpoints / "poems" / "stage-2")
    (checkpoints / "link").symlink_to(checkpoints / "poems")
    for name, says in (
        ("checkpoints/poems/stage-2", "a part of a run; to remove the whole run, give checkpoints/poems"),
        ("checkpoints/poems/step-00000500", "a part of a run; to remove the whole run, give checkpoints/poems"),
        ("checkpoints", "no run of that name"),
        ("poem", "did you mean poems"),
        (".", "^.: no run of that name"),
        ("link", "link: a link; to remove its run, give checkpoints/poems"),
    ):
        with pytest.raises(UserError, match=says):
            remove.main([name, "--yes"])
    left = Run(checkpoints / "died")
    (left.folder / "details.txt").write_text("left")
    del left
    assert remove.main(["died", "checkpoints/poems", "--yes"]) == 0 and os.listdir(checkpoints) == ["link"]


def test_train_replaces_a_run_and_may_be_killed_at_any_time(programs, text, tmp_path):
    run, begun = publish_run(tmp_path / "run", steps=(OLD,)), tmp_path / "run.new"
    words = [str(text), "--config", "tiny", "train.max_steps=20", "train.eval_interval=10", "train.sample_length=10"]
    words += ["runtime.threads=1", f"data.cache={tmp_path}/cache", "--run", str(run), "--overwrite"]
    for milliseconds in (0, 60):
        with programs.start("train", *words, stdout=DEVNULL) as training:
            while training.poll() is None and not begun.exists():
                time.sleep(0.001)
            time.sleep(milliseconds / 1000)
            training.send_signal(signal.SIGKILL)
            training.wait()
        assert step_of(str(run), tmp_path) in (OLD, 0, 10, 20)
        if begun.exists() and steps(begun):
            assert remove.main([str(begun), "--yes"]) == 0
    done = programs.run("train", *words)
    assert done.returncode == 0 and f"{run}/report.html" in done.stdout.decode() and ".new" not in done.stdout.decode()
    assert logged(run)[-1]["step"] == 20 and len(list(run.glob("events*"))) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "run"]
