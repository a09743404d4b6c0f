"""How a run begins and continues."""

import dataclasses
import gc
import json
import os
import shutil
import time
from pathlib import Path

import pytest
import torch
from helpers import SHAPE, TINY_FILE, apply_overrides, bits, last_step, logged, publish_run
from session_helpers import finish, opened, planned, resume, resumed, trained

from chargpt.config import Config, DataConfig
from chargpt.errors import UserError
from chargpt.interrupt import Interrupt
from chargpt.planning.budget import longest_run
from chargpt.planning.cli import parse_options
from chargpt.project import project_root
from chargpt.runs.checkpoint import newest, publish
from chargpt.runs.run import Run
from chargpt.runs.stage import Length, Models, Stage
from chargpt.session.opening import join_opening
from chargpt.session.resuming import open_saved, run_to_resume
from chargpt.session.session import Session
from chargpt.text.corpus import load_corpus
from chargpt.training.group import Group
from chargpt.training.initialisation import initial_model
from chargpt.training.parallel import Processes

TINY = ["--config", TINY_FILE, "train.max_steps=20", "train.sample_length=0", "runtime.threads=1"]


@pytest.mark.parametrize("step", ["native", "torch"])
def test_other_bits_are_told_of_a_run_that_gets_them_and_of_no_other(step, text, tmp_path, capsys):
    """Steps in C have the same bits with any number of threads, and do not use the kernel of attention alone."""
    words = [*TINY, "train.max_steps=8", f"runtime.step={step}", "runtime.precision=float32", "optim.grad_clip=0.1"]
    try:
        run = trained(text, tmp_path / "run", *words)
    except UserError as error:
        pytest.skip(str(error))
    others = {change: shutil.copytree(run, tmp_path / change) for change in ("runtime.threads=2", "runtime.attention=plain")}
    assert resume(run, "train.max_steps=10") == 0 and "may differ slightly" not in capsys.readouterr().out
    for change, other in others.items():
        assert resume(other, "train.max_steps=10", change) == 0
        assert ("may differ slightly" in capsys.readouterr().out) == (step == "torch")
        assert step == "torch" or bits(other) == bits(run)


OTHERWISE = ["train.seed=2", "model.positions=sinusoidal", "train.eval_chars=100", "runtime.threads=2", "runtime.step=torch"]


def test_the_loss_before_the_first_step_is_computed_once_for_the_same_weights_text_and_machine(text, tmp_path):
    words = [*TINY, "train.max_steps=2", "runtime.precision=float32"]
    first = logged(trained(text, tmp_path / "run", *words))[0]["val/loss"]
    (kept,) = tmp_path.glob("cache/*/begun.json")
    content = kept.read_text()
    assert str(first) in content
    for number, damaged in enumerate((content.replace(str(first), "9.5"), content.replace(str(first), '"x"'), content[:-4])):
        kept.write_text(damaged)
        found = logged(trained(text, tmp_path / f"run-{number}", *words))[0]["val/loss"]
        assert found == (first if number else 9.5) and (number == 0 or kept.read_text() != damaged)
    for number, other in enumerate(OTHERWISE):
        kept.write_text(content.replace(str(first), "9.5"))
        assert logged(trained(text, tmp_path / f"other-{number}", *words, other))[0]["val/loss"] < 9, other


class Pauses(Interrupt):
    """A process that is paused, one second in each batch of an evaluation."""

    @property
    def came_here(self) -> bool:
        time.sleep(1)
        return False


def test_a_pause_before_the_first_step_is_not_expected_again_in_later_runs(text, tmp_path):
    for name, process in (("first", Pauses()), ("second", Interrupt())):
        session = begin(text, tmp_path / name)
        session.evaluate(process)
        assert session.budget.watch.spared < 1
    (kept,) = tmp_path.glob("cache/*/begun.json")
    of, (*loss, _, _) = json.loads(kept.read_text())
    kept.write_text(json.dumps([of, [*loss, 1e6, 2e6]]))
    session = begin(text, tmp_path / "third")
    session.evaluate(Interrupt())
    assert 0 < session.budget.watch.spared < 1e6


def begin(text: Path, folder: Path, *words: str) -> Session:
    return opened([str(text), *TINY, "--run", str(folder), f"data.cache={folder.parent}/cache", *words])


def test_a_new_run_is_at_step_0_and_leaves_no_folder_when_something_is_wrong(text, tmp_path):
    training = begin(text, tmp_path / "run")
    assert training.trainer.progress.step == 0 and training.saved is None
    config, weights = training.trainer.config, training.trainer.model.state_dict()
    torch.manual_seed(config.train.seed)
    expected = initial_model(config.model, training.corpus.tokenizer.vocab_size).state_dict()
    assert weights.keys() == expected.keys() and all(torch.equal(weights[name], expected[name]) for name in weights)
    with pytest.raises(UserError):
        begin(text, tmp_path / "other", "model.block_size=100000")
    assert not (tmp_path / "other").exists()


def test_a_run_that_another_process_finished_meanwhile_is_not_overwritten(text, tmp_path, monkeypatch):
    """The other run begins and ends between this one's first look at the folder and its lock."""
    real = Run.__init__

    def late(self: Run, folder: Path, **more: object) -> None:
        monkeypatch.setattr(Run, "__init__", real)
        trained(text, tmp_path / "run", *TINY)
        real(self, folder, **more)

    monkeypatch.setattr(Run, "__init__", late)
    with pytest.raises(UserError, match="a run of this name exists"):
        begin(text, tmp_path / "run")
    assert bits(tmp_path / "run") and logged(tmp_path / "run")[-1]["step"] == 20


def test_a_run_that_is_extended_by_minutes_has_the_schedule_of_its_new_length(text, tmp_path):
    """A finished run has a rate of zero, from which it would learn nothing. Another plan of a running one never raises it."""
    run = trained(text, tmp_path / "run", *TINY)
    session = resumed(run, "--minutes", "1")
    trainer = session.trainer
    assert session.budget.extends
    trainer.set_length(200, interval=1, may_rise=True)
    assert trainer.rate_of(20) == trainer.config.optim.learning_rate
    trainer.progress.step = 150
    trainer.set_length(400, interval=1)
    assert trainer.rate_of(150) == pytest.approx(trainer.config.optim.learning_rate / 2)
    del session, trainer  # and the lock of the run
    assert not resumed(run).budget.extends


def test_epochs_end_a_run_after_as_many_steps_rounded_up():
    for epochs, characters, steps in ((3, 100, 5), (2.5, 128, 5), (0.001, 100, 1), (0, 100, 10**12)):
        config = apply_overrides(Config(), [f"train.max_epochs={epochs}", "train.batch_size=4", "model.block_size=16"])
        assert longest_run(config, characters=characters) == steps


def test_another_length_by_the_user_begins_a_new_plan(text, tmp_path):
    run = trained(text, tmp_path / "run", *TINY, "train.max_epochs=3", "train.max_steps=9")
    checkpoint, _ = newest(run)
    fitted = Length(steps=12, warmup=3, interval=2, since=5, decayed=0.1)
    state = dataclasses.replace(checkpoint.state, stage=Stage(models=Models(epochs=2.0), length=fitted))
    publish(run, weights=checkpoint.weights, training=checkpoint.training, state=state)
    for more, length, epochs in (
        ([], fitted, 3),
        (["optim.warmup_steps=2", "train.eval_interval=7"], dataclasses.replace(fitted, warmup=2, interval=7), 3),
        (["train.max_steps=30"], Length(steps=30, warmup=10, interval=100), 0),
        (["--minutes", "1"], Length(steps=25, warmup=6, interval=100), 0),  # enough to measure the speed
    ):
        session = resumed(run, *more)
        assert (session.trainer.length, session.trainer.config.train.max_epochs) == (length, epochs)
        assert session.stage.models.epochs == (2.0 if epochs else None)
        del session
        gc.collect()


def test_a_length_in_epochs_is_a_number_of_steps(text, tmp_path):
    """10,800 characters are for training; a step of the tiny preset takes 256."""

    def config(*words: str) -> Config:
        return planned(text, tmp_path, *words).config

    steps = -(-2 * 10800 // 256)
    assert config("--config", "tiny", "--epochs", "2").train.max_steps == steps
    assert config("--config", "tiny", "--epochs", "2") == config("--config", "tiny", f"train.max_steps={steps}")
    assert config("--config", "tiny", "--epochs", "0.0001").train.max_steps == 1
    alone = config("--epochs", "3", "model.n_layer=1")
    assert alone == config("model.n_layer=1", f"train.max_steps={-(-3 * 10800 // alone.chars_per_step)}")


def test_a_run_is_extended_to_a_number_of_epochs(text, tmp_path, capsys):
    run, steps = trained(text, tmp_path / "run", *TINY), -(-10800 // 256)
    assert resume(run, "--epochs", "1") == 0
    assert logged(run)[-1]["step"] == steps and f"train.max_steps: 20 -> {steps}" in capsys.readouterr().out
    for given, named in ((["--epochs", "0.01"], "--epochs: 0.01"), (["train.max_steps=1"], "train.max_steps: 1")):
        with pytest.raises(UserError, match=f"^{named} given, but the run has taken {steps} steps already; give more$"):
            resume(run, *given)


def test_a_run_killed_before_its_length_is_fixed_keeps_the_rest_of_its_time(text, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(Session, "advance", lambda session: 1 / 0)
        finish(begin(text, tmp_path / "run", "--minutes", "10"))
    gc.collect()  # the lock of the run
    assert 500 < resumed(tmp_path / "run").budget.limit < 600
    assert resumed(tmp_path / "run", "--minutes", "1").budget.limit == 60


def moved(text: Path, tmp_path: Path) -> Path:
    """A run of 20 steps whose text has moved to new.txt, without its encoded copy."""
    (tmp_path / "old.txt").write_bytes(text.read_bytes() + b"The stone moved to another place.\n")  # in no other cache
    run = trained(tmp_path / "old.txt", tmp_path / "run", *TINY)
    (tmp_path / "old.txt").rename(tmp_path / "new.txt")
    shutil.rmtree(tmp_path / "cache")
    return run


@pytest.mark.parametrize("seconds_left", [None, 600.0])
@pytest.mark.parametrize("settings", ["train.max_steps=503", "train.max_epochs=3", "train.max_epochs=0.1"])
def test_a_length_that_is_given_for_a_resumed_run_is_its_length(settings, seconds_left, text, tmp_path):
    """Also if the run was stopped before its length was fitted to its time; and a run never becomes shorter than it is."""
    data = DataConfig(cache=str(tmp_path / "cache"))
    corpus = load_corpus([str(text)], data, root=tmp_path, block_size=8)
    config = apply_overrides(Config(model=SHAPE, data=data), ["train.batch_size=1", "train.max_steps=100000"])
    is_in_steps = settings.startswith("train.max_steps")
    changes = {"config": config, "fingerprint": corpus.fingerprint, "texts": [str(text)], "seconds_left": seconds_left}
    run = publish_run(tmp_path / "run", corpus.tokenizer, **changes)
    found = open_saved(parse_options(["--resume", "--run", str(run), settings]), root=project_root(), group=Group())
    steps = 503 if is_in_steps else max(500, longest_run(found.config, characters=len(corpus.train)))
    assert (found.state.stage.length.steps, found.budget.limit) == (steps, None if is_in_steps else seconds_left)
    assert found.budget.extends == (found.budget.limit is not None), "its rate may rise when its length is fitted"


def test_processes_that_cannot_share_a_batch_or_read_another_text_than_the_first_one_are_refused(text, tmp_path):
    run = trained(text, tmp_path / "run", *TINY, "train.max_steps=2")
    words = ["--resume", "--run", str(run), f"data.cache={tmp_path}/cache"]
    with pytest.raises(UserError, match="train.batch_size: 8 given, which 3 processes cannot share equally"):
        open_saved(parse_options(words), root=project_root(), group=Processes(0, 3))
    gc.collect()  # the lock of the run
    first = open_saved(parse_options([*words, "train.max_steps=50"]), root=project_root(), group=Group())
    given = dataclasses.replace(first, state=dataclasses.replace(first.state, fingerprint="1" * 64))
    with pytest.raises(UserError, match="^TEXT: differs from that of the first process; give every machine"):
        join_opening(given.decision, root=project_root(), group=Group(), corpus=first.corpus, runtime=None)


def test_a_text_names_its_run(tmp_path):
    for name, seconds in (("sea", 0), ("newer", 9)):
        os.utime(next(publish_run(tmp_path / name).glob("step-*")), (seconds, seconds))
    found = [run_to_resume(None, texts, tmp_path).name for texts in (["elsewhere/sea.txt"], ["other.txt"], [])]
    assert found == ["sea", "newer", "newer"]


def test_a_text_that_has_moved_is_given_with_resume_and_then_remembered(text, tmp_path):
    run = moved(text, tmp_path)
    with pytest.raises(
        UserError, match=r"old.txt: .*; put it back, or give its new place: --resume --run .*run TEXT; to train on another text"
    ):
        resume(run, "train.max_steps=22")
    assert resume(run, "train.max_steps=22", str(tmp_path / "new.txt")) == 0
    shutil.rmtree(tmp_path / "cache")
    assert resume(run, "train.max_steps=24") == 0
    assert last_step(run).name == "step-00000024"


@pytest.mark.parametrize("change", [("stone", "river"), ("stone", "żółw")], ids=["known characters", "new characters"])
def test_another_text_is_not_resumed_but_can_begin_a_run(change, text, tmp_path):
    run = moved(text, tmp_path)
    (tmp_path / "new.txt").write_text(text.read_text(encoding="utf-8").replace(*change), encoding="utf-8")
    with pytest.raises(UserError, match=r"TEXT: .*new.txt given.*--init-from .*run") as raised:
        resume(run, "train.max_steps=22", str(tmp_path / "new.txt"))
    assert "\n" not in str(raised.value) and last_step(run).name == "step-00000020"


@pytest.mark.parametrize("early", [[], ["train.patience=1", "train.eval_interval=2", "optim.learning_rate=1e-30"]])
def test_a_resumed_run_that_has_ended_has_no_steps_to_go(early, text, tmp_path, capsys):
    run = trained(text, tmp_path / "run", *TINY, *early)
    assert (last_step(run).name < "step-00000020") == bool(early)
    capsys.readouterr()
    assert resume(run) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("resumed ")]
    assert f"{last_step(run)}, no steps to go" in line and ("train.patience=0" if early else "train.max_steps=40") in line


def test_a_damaged_checkpoint_is_one_line_and_the_run_continues_from_the_one_before(text, tmp_path, capsys):
    run = trained(text, tmp_path / "run", *TINY, "checkpoint.interval=10")
    whole, damaged = bits(run), run / "step-00000020" / "training.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-5] + b".....")
    before = {path.name: path.read_bytes() for path in damaged.parent.iterdir()}
    capsys.readouterr()
    assert resume(run) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "skipped" in line] == [f"warning     skipped {damaged}: damaged, its checksum differs"]
    assert f"resumed     from {run}/step-00000010, 10 steps to go" in lines
    assert bits(run) == whole and last_step(run).name == "step-00000020.2"
    assert before == {path.name: path.read_bytes() for path in damaged.parent.iterdir()}


def test_a_run_that_is_resumed_keeps_what_it_has_reached_and_who_set_its_settings(text, tmp_path):
    assert finish(begin(text, tmp_path / "run", "checkpoint.interval=10")) == 0
    checkpoint, _ = newest(tmp_path / "run")
    progress = checkpoint.state.progress
    assert progress.first_loss == logged(tmp_path / "run")[0]["val/loss"] and 0 < progress.seconds < 60
    sources, reasons = {"train.max_steps": "user", "model.n_layer": "chosen"}, {"model.n_layer": "the time"}
    settings = dataclasses.replace(checkpoint.state.settings, sources=sources, reasons=reasons)
    edited = dataclasses.replace(checkpoint.state, settings=settings)
    edited.progress.seconds, edited.progress.first_step = 1000.0, 60
    publish(tmp_path / "run", weights=checkpoint.weights, training=checkpoint.training, state=edited)
    assert finish(resumed(tmp_path / "run", "train.max_steps=24")) == 0
    state = newest(tmp_path / "run")[0].state
    given = {**sources, "data.cache": "user"}  # on the command line that continues it
    assert (state.settings.sources, state.settings.reasons, state.progress.first_step) == (given, reasons, 60)
    assert 1000 < state.progress.seconds < 1060 and state.progress.first_loss == progress.first_loss


def test_a_run_that_patience_ends_has_the_mean_of_its_weights_and_its_loss(text, tmp_path):
    """A rate that is far too high makes the loss rise, and patience ends the run long before its length."""
    words = ["train.max_steps=400", "train.eval_interval=10", "train.patience=2", "optim.average_fraction=1.0"]
    session = begin(text, tmp_path / "run", *words, "optim.learning_rate=0.3", "train.teachers=0")
    taken, take = [], session.trainer.take_mean
    session.trainer.take_mean = lambda: taken.append(take()) or taken[-1]
    assert finish(session) == 0
    state = newest(tmp_path / "run")[0].state
    assert 0 < state.progress.step < 400 and len(taken) == 1 and state.progress.evaluated == state.progress.step
    with session.trainer.group.interrupt as interrupt:
        of_mean = session.trainer.calibrate(session.corpus.val, marks=None, interrupt=interrupt)
        session.trainer.restore(taken[0], session.trainer.progress)
        of_last = session.trainer.calibrate(session.corpus.val, marks=None, interrupt=interrupt)
    assert (state.progress.val_loss, state.progress.temperature) == pytest.approx(of_mean, abs=1e-5) != of_last
