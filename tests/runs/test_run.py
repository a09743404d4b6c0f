"""The folder of a run: one writer, the best checkpoint marked, and no name that leads elsewhere."""

import errno
import os
from pathlib import Path

import pytest
from helpers import SHAPE, publish_run, random_weights, saved_state

from chargpt.config import CheckpointConfig, Config, TrainConfig
from chargpt.errors import NoSpace, NotWritten, UserError
from chargpt.runs.checkpoint import best, newest, steps
from chargpt.runs.run import Run, folder_of, new_folder
from chargpt.runs.stage import Length, Progress, Stage
from chargpt.settings import apply
from chargpt.yaml_settings import read_yaml


@pytest.fixture
def small_disk(tmp_path, monkeypatch) -> None:
    """A disk with space for four checkpoints and a half."""
    write, run = os.write, tmp_path / "run"

    def size(folder: Path) -> int:
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())

    def limited(file: int, data: bytes) -> int:
        one = size(run / "step-00000000")  # the first one always fits
        if one and size(run) + len(data) > 4.5 * one:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data)

    monkeypatch.setattr(os, "write", limited)


def test_on_a_full_disk_the_oldest_checkpoint_goes_that_is_neither_the_best_nor_the_newest(tmp_path, small_disk):
    run, config = (
        Run(tmp_path / "run"),
        Config(model=SHAPE, train=TrainConfig(batch_size=1), checkpoint=CheckpointConfig(keep=9)),
    )

    def save(step: int) -> list[str]:
        """The best step is the first one."""
        loss = 2.0 if step == 0 else 1.0
        losses = {"val_loss": 2.0, "best_loss": loss, "lowest_loss": loss, "best_step": 0}
        progress = Progress(step=step, evaluated=step, **losses)
        state = saved_state(step, config=config, progress=progress)
        return run.save(state, weights=random_weights(step), training={})

    assert [save(step) for step in (0, 10, 20, 30)] == [[]] * 4 and run.checkpoint.name == "step-00000030"
    (problem,) = save(40)
    assert "the disk is full, so older checkpoints were removed to save the newest" in problem
    assert [path.name for path in steps(run.folder)] == [f"step-{step:08}" for step in (0, 20, 30, 40)]
    assert newest(run.folder)[0].step == 40 and best(run.folder)[0].step == 0
    (run.folder / "other").write_bytes(bytes(10**6))  # now nothing can go that the run does not need
    with pytest.raises(NotWritten, match="step-00000050: not saved"):
        save(50)
    assert [path.name for path in steps(run.folder)] == ["step-00000000", "step-00000040"]
    assert newest(run.folder)[0].step == 40


def test_another_error_of_a_disk_removes_nothing(tmp_path, monkeypatch):
    publish_run(tmp_path / "run", steps=(0, 10, 20))
    run = Run(tmp_path / "run")
    run.load_newest()

    def fails(file: int, data: bytes) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "write", fails)
    with pytest.raises(NotWritten, match="step-00000030: not saved"):
        run.save(saved_state(30), weights=random_weights(30), training={})
    assert len(steps(run.folder)) == 3


@pytest.mark.parametrize(
    ("function", "call"), [("write", 0), ("write", 1), ("write", 2), ("fsync", 0), ("fsync", 1), ("fsync", 2), ("replace", 0)]
)
def test_a_run_that_is_renamed_while_it_trains_goes_on_under_its_new_name(tmp_path, monkeypatch, function, call):
    """At any moment of a save, and by whomever."""
    run, calls, original = Run(tmp_path / "run"), [0], getattr(os, function)
    run.save(saved_state(10), weights=random_weights(10), training={})

    def renaming(*given):
        if calls[0] == call:
            os.rename(tmp_path / "run", tmp_path / "lion")
        calls[0] += 1
        return original(*given)

    monkeypatch.setattr(os, function, renaming)
    assert not run.save(saved_state(20), weights=random_weights(20), training={}) and calls[0] > call
    monkeypatch.undo()
    assert not (tmp_path / "run").exists()
    assert run.folder == tmp_path / "lion" and run.name(tmp_path) == "lion" and run.checkpoint.parent == run.folder
    assert [path.name for path in steps(run.folder)] == ["step-00000010", "step-00000020"]


def test_a_run_that_is_moved_to_another_folder_is_one_line_and_keeps_what_it_has(tmp_path):
    run, elsewhere = Run(tmp_path / "run"), tmp_path / "elsewhere"
    run.save(saved_state(10), weights=random_weights(10), training={})
    os.renames(tmp_path / "run", elsewhere / "run")
    with pytest.raises(UserError, match="run: No such file or directory"):
        run.save(saved_state(20), weights=random_weights(20), training={})
    assert [path.name for path in steps(elsewhere / "run")] == ["step-00000010"]


def test_a_first_checkpoint_that_cannot_be_saved_promises_no_earlier_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
    with pytest.raises(NotWritten, match=r"not saved \(broken\); its disk"):
        publish_run(tmp_path / "run", steps=(0,))


def test_of_a_model_that_another_follows_the_best_weights_stay(tmp_path):
    run = Run(tmp_path / "run")
    for step, best_step in ((10, 10), (20, 20), (30, 20)):
        run.save(saved_state(step, best_step=best_step), weights=random_weights(step), training={})
    run.begin_stage(2)
    run.save(saved_state(0, number=2), weights=random_weights(0), training={})
    (kept,) = steps(run.folder)
    assert kept.name == "step-00000020" and not (kept / "training.safetensors").exists()
    assert best(run.folder)[1] == [] and run.place.name == "stage-2"


def test_what_a_crash_left_in_any_model_of_a_run_is_gone_when_it_is_opened(tmp_path):
    run, dead = Run(tmp_path / "run"), 2**22 + 1  # no process has this id
    for number in (1, 2, 3):
        run.begin_stage(number)
        run.save(saved_state(0, number=number), weights=random_weights(0), training={})
        (run.place / f".step-00000010.tmp-{dead}").mkdir()
    del run
    Run(tmp_path / "run")
    assert not [*(tmp_path / "run").rglob(".step-*")]


def test_the_config_is_readable_and_replaces_a_link(tmp_path):
    config, run = Config(train=TrainConfig(max_steps=7)), Run(tmp_path / "run")
    (tmp_path / "canary").write_text("mine")
    (run.folder / "config.yaml").symlink_to(tmp_path / "canary")
    assert run.write_config(config, Stage(length=Length.of(config))) is None
    assert apply(Config(), read_yaml(run.folder / "config.yaml"), where="") == config
    assert (tmp_path / "canary").read_text() == "mine"


def test_a_name_is_a_folder_and_a_path_is_a_path(tmp_path):
    assert folder_of("poems", tmp_path) == tmp_path / "poems"
    assert folder_of("/elsewhere/poems", tmp_path).parts[-2:] == ("elsewhere", "poems")
    for name in ("", ".", "..", "a\nb", "/", "x/..", "-x", " x", "x ", "/tmp/ x", "step-00000010", "/tmp/step-00000010.2"):
        with pytest.raises(UserError, match="--run"):
            folder_of(name, tmp_path)


def test_a_new_run_takes_no_folder_that_holds_something(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("")
    with pytest.raises(UserError, match="holds no checkpoint"):
        new_folder("thesis", tmp_path)
    (tmp_path / "died").mkdir()
    (tmp_path / "died" / "metrics.jsonl").write_text("")  # left by a run that died before its first checkpoint
    assert new_folder("died", tmp_path) == tmp_path / "died"


def test_the_checkpoint_that_counts_is_the_newest_valid_one(tmp_path):
    publish_run(tmp_path / "run", steps=(10, 20))
    (tmp_path / "run" / "step-00000020" / "state.json").write_text("damaged")
    run = Run(tmp_path / "run")
    assert run.checkpoint is None
    run.load_newest()
    assert run.checkpoint.name == "step-00000010"
    run.save(saved_state(10), weights=random_weights(10), training={})
    assert run.checkpoint.name == "step-00000010.2"


def test_a_name_that_differs_from_another_one_in_case_alone_is_refused(tmp_path):
    (tmp_path / "anna").mkdir()
    (tmp_path / "anna-2").mkdir()
    for name in ("Anna", "ANNA"):
        what = f"anna exists there, which is the same name on some systems; choose another --run NAME, such as .*{name}-3"
        with pytest.raises(UserError, match=what):
            new_folder(name, tmp_path)
    assert new_folder("anna", tmp_path) == tmp_path / "anna"


def test_what_is_said_of_a_name_that_is_taken(tmp_path):
    publish_run(tmp_path / "run")
    for overwrite, says in ((None, "run-2$"), (False, "run-2, or replace it with --overwrite$")):
        with pytest.raises(
            UserError,
            match=f"exists; continue it with python train.py --resume --run run, or choose .* {says}",
        ):
            new_folder("run", tmp_path, overwrite=overwrite)


def test_a_run_whose_checkpoints_do_not_fit_on_the_disk_does_not_begin(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: (5000, 2000, 3000))
    run = Run(tmp_path / "run")
    run.check_space(1000)
    with pytest.raises(NoSpace, match="needs 3,003 bytes for 3 checkpoints, and only 3,000 bytes are free; .*--run PATH"):
        run.check_space(1001)
    assert not run.folder.exists()
