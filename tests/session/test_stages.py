"""The models of a run: others follow the first one if it memorises its text, in one folder, and a kill changes no bit."""

import dataclasses
import gc
import math
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import TINY_FILE, Clock, apply_overrides, bits, logged, logged_without_speed, random_weights, saved_state
from session_helpers import clock_of_steps, resume

import train
from chargpt.commands import runs
from chargpt.config import Config
from chargpt.errors import UserError
from chargpt.interrupt import Interrupt
from chargpt.notices import Kind
from chargpt.planning.plan import Opening, make_plan
from chargpt.runs import run as run_module
from chargpt.runs.checkpoint import best, newest, publish, stage_folder, steps
from chargpt.runs.load import find_checkpoint, find_run
from chargpt.runs.models import restore_model
from chargpt.runs.run import Run
from chargpt.runs.stage import Length, Models
from chargpt.session.due import decision_step
from chargpt.session.opening import STRETCHES, decide, measure
from chargpt.session.session import Session
from chargpt.text.corpus import Corpus, load_corpus
from chargpt.training.evaluation import digest
from chargpt.training.initialisation import initial_model
from chargpt.training.runtime import choose_runtime
from chargpt.training.trainer import Trainer
from chargpt.yaml_settings import read_yaml

LENGTH = "train.max_steps=12 train.eval_interval=6 checkpoint.interval=3 train.sample_length=0 runtime.threads=1"
TINY = ["--config", TINY_FILE, *LENGTH.split()]
REGULARIZED = ["model.dropout=0.1", "optim.weight_decay=0.9", "train.patience=1000", "checkpoint.keep=9"]


@pytest.fixture(scope="module")
def corpus(text, tmp_path_factory) -> Corpus:
    folder = tmp_path_factory.mktemp("corpus")
    return load_corpus([str(text)], apply_overrides(Config(), [f"data.cache={folder}"]).data, root=folder, block_size=16)


def new_trainer(corpus: Corpus, *settings: str) -> Trainer:
    shape = ["model.n_layer=1", "model.n_embd=32", "model.n_head=1", "model.block_size=16", "train.batch_size=8"]
    config = apply_overrides(Config(), [*shape, "train.max_steps=100", "runtime.precision=float32", *settings])
    torch.manual_seed(0)
    model = initial_model(config.model, corpus.tokenizer.vocab_size)
    return Trainer(model, corpus.train, config, runtime=choose_runtime(config))


def test_the_losses_are_those_of_equal_amounts_of_text_and_measuring_changes_nothing(corpus):
    """A training split that repeats the validation split has the same loss, and one of other characters has not."""
    trainer = new_trainer(corpus, "model.dropout=0.5")
    same = dataclasses.replace(corpus, train=np.tile(corpus.val, 9), val=np.tile(corpus.val, STRETCHES))
    before, randomness = trainer.weights.vector.clone(), torch.get_rng_state()
    losses = measure(trainer, same, Interrupt())
    assert losses[0] == pytest.approx(losses[1], abs=0.02) and losses == measure(trainer, same, Interrupt())
    assert torch.equal(before, trainer.weights.vector) and torch.equal(randomness, torch.get_rng_state())
    assert trainer.weights.working.training and trainer.progress.step == 0
    trainer, counted = new_trainer(corpus, "runtime.step=torch"), []
    trainer.weights.working.register_forward_hook(lambda model, inputs, _: counted.append(inputs[0].numel()))
    measure(trainer, corpus, Interrupt())
    assert sum(counted) - (len(corpus.val) - 1) == pytest.approx(len(corpus.val), rel=0.02)


def test_the_training_text_is_measured_from_its_beginning_to_its_end(corpus):
    """Other characters at either end, or in the middle, change the loss on training text and no other."""
    trainer, end = new_trainer(corpus), len(corpus.train)
    loss = measure(trainer, corpus, Interrupt())
    few = len(corpus.val) // STRETCHES // 2
    for start in (0, (end - few) * 3 // 7, (end - few) * 6 // 7, end - few):
        train = corpus.train.copy()
        train[start : start + few] = (train[start : start + few] + 1) % corpus.tokenizer.vocab_size
        changed = measure(trainer, dataclasses.replace(corpus, train=train), Interrupt())
        assert changed[0] != loss[0] and changed[1] == loss[1], start


def test_the_losses_of_a_list_are_those_of_whole_items(tmp_path):
    names = [f"{label},{'abcde'[i % 5] * (i % 7 + 1)}{i}" for i, label in enumerate(["elf", "orc"] * 100)]
    (tmp_path / "names.csv").write_text("race,name\n" + "\n".join(names))
    settings = ["data.items=name", "data.label=race", f"data.cache={tmp_path}"]
    data = apply_overrides(Config(), settings).data
    corpus = load_corpus([f"{tmp_path}/names.csv"], data, root=tmp_path, block_size=16)
    trainer = new_trainer(corpus)
    same = measure(trainer, dataclasses.replace(corpus, train=np.tile(corpus.val, 3)), Interrupt())
    assert same[0] == same[1] > 1
    longer = np.concatenate((corpus.train[:4], np.tile(corpus.train[4:6], 500), corpus.train))  # its first item is long
    assert measure(trainer, dataclasses.replace(corpus, train=longer), Interrupt())[0] > 1


def test_the_decision_keeps_the_plan_or_makes_one_long_run():
    planned = Models(count=3, is_decided=False, why="it may", seconds=5.0, epochs=30)
    (several, said), (alone, says) = decide(1.0, 1.0201, planned), decide(1.0, 1.0199, planned)
    assert several == dataclasses.replace(planned, is_decided=True, why=said.text.removeprefix("3: "))
    assert alone == Models(why=says.text.removeprefix("one: ")), "as many passes over the text as the settings say"
    assert decide(float("nan"), 1.0, planned)[0].count == 3
    assert said.kind is says.kind is Kind.MODELS
    assert "1.00 there, 1.02 on validation text" in said.text and "more models would not help" in says.text


def test_the_decision_comes_before_the_rate_falls():
    for settings, step in (
        ("optim.warmup_steps=10", 45),
        ("optim.decay_fraction=0.2", 72),
        ("optim.decay_fraction=1 optim.warmup_steps=10", 20),
        ("optim.schedule=cosine optim.warmup_steps=30", 30),
    ):
        config = apply_overrides(Config(), ["train.max_steps=100", *settings.split()])
        assert math.ceil(decision_step(config, Length.of(config))) == step


def run(text: Path, folder: Path, name: str, *words: str) -> int:
    return train.main([str(text), *TINY, "--run", f"{folder}/{name}", f"data.cache={folder}/cache", *words])


def leave_undecided(monkeypatch: pytest.MonkeyPatch, *, gap: float) -> None:
    """Several models of a run are planned, and others follow if the first one has this gap between its losses."""

    def planned(*given: object, **named: object) -> Opening:
        plan = make_plan(*given, **named)
        stage = dataclasses.replace(plan.state.stage, models=dataclasses.replace(plan.state.stage.models, is_decided=False))
        return dataclasses.replace(plan, state=dataclasses.replace(plan.state, stage=stage))

    monkeypatch.setattr(train, "make_plan", planned)
    monkeypatch.setattr("chargpt.session.opening.STUDENT_GAP", gap)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    return clock_of_steps(monkeypatch, seconds=0.05)


def test_a_model_that_does_not_memorise_goes_on_for_the_whole_time(text, tmp_path, capsys, clock, monkeypatch):
    leave_undecided(monkeypatch, gap=50)
    words = "--minutes 0.15 train.teachers=1 train.log_interval=1".split()
    words += ["train.eval_interval=50", "checkpoint.interval=50"]
    started = clock.now
    assert run(text, tmp_path, "whole", *words) == 0
    took, out = clock.now - started, " ".join(capsys.readouterr().out.split())
    assert "models one: this model does not memorise" in out and not (tmp_path / "whole" / "stage-2").exists()
    models = newest(tmp_path / "whole")[0].state.stage.models
    assert models == Models(why=models.why) and "does not memorise" in models.why
    assert read_yaml(tmp_path / "whole" / "config.yaml")["train"]["teachers"] == "0", "another run trains one model at once"
    rates = [line["lr"] for line in logged(tmp_path / "whole") if "lr" in line]
    peak = rates.index(max(rates))
    assert all(later <= rate for rate, later in zip(rates[peak:], rates[peak + 1 :]))
    assert 7 < took <= 9  # all of the 9 seconds, but for what is kept back for the end
    assert rates[-1] < 0.05 * max(rates)


def test_config_yaml_repeats_a_run_whose_length_was_fitted_at_the_peak_of_its_rate(text, tmp_path, clock):
    """Its epochs end it before its time, so that only the first measurement changes its length."""
    words = ["--minutes", "0.5", "train.max_epochs=3", "train.max_steps=200", "optim.average_fraction=0.3"]
    assert run(text, tmp_path, "fitted", *words) == 0
    state = newest(tmp_path / "fitted")[0].state
    assert state.stage.length.since == 0 and state.stage.length.steps == state.progress.step > 100
    again = ["--config", f"{tmp_path}/fitted/config.yaml", "--run", f"{tmp_path}/again"]
    assert train.main([str(text), *again]) == 0
    repeated = newest(tmp_path / "again")[0].state
    assert bits(tmp_path / "again") == bits(tmp_path / "fitted") and repeated.as_trained == state.as_trained


def test_the_time_that_a_model_does_not_use_is_for_the_next_one(text, tmp_path, monkeypatch):
    """The first one learns nothing, so patience ends it; what is left of its minute goes to the last one, which has two."""
    clock = clock_of_steps(monkeypatch, seconds=1.0)
    words = "--minutes 3 train.teachers=1 train.patience=1 train.eval_interval=5 checkpoint.interval=90".split()
    words += ["optim.learning_rate=1e-30", "optim.schedule=cosine"]
    started = clock.now
    assert run(text, tmp_path, "early", *words) == 0
    last = newest(tmp_path / "early" / "stage-2")[0].state.progress
    assert last.first_step < 20 and 150 < clock.now - started <= 180


def test_a_model_that_memorises_becomes_the_teacher_of_a_second_one(text, tmp_path, capsys, monkeypatch):
    """The validation text has other words."""
    leave_undecided(monkeypatch, gap=0.1)
    (tmp_path / "other.txt").write_text("".join(reversed(text.read_text(encoding="utf-8")[:3000])), encoding="utf-8")
    words = ["train.teachers=1", f"data.val_text={tmp_path}/other.txt", "train.max_steps=40", "train.eval_interval=20"]
    lines = tmp_path / "lines.txt"
    lines.write_bytes(text.read_bytes().replace(b"\n", b"\r\n"))
    assert run(lines, tmp_path, "both", *words) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("set data.newlines=keep") == 1  # a note on the text is for both
    assert "models 2: this model begins to memorise" in out and "model 2 of 2, with seed 1338, learns from the text" in out
    assert out.count("\nreport ") <= 1 and steps(tmp_path / "both" / "stage-2")


@pytest.fixture(scope="module")
def whole(text, tmp_path_factory) -> Path:
    """The folder with the run `whole` of two teachers and their student, which keeps all checkpoints of the student."""
    folder = tmp_path_factory.mktemp("stages")
    assert run(text, folder, "whole", "train.teachers=2", *REGULARIZED) == 0
    return folder


def test_the_last_model_learns_from_the_best_checkpoints_of_those_before_it(whole):
    places = [stage_folder(whole / "whole", stage) for stage in (1, 2, 3)]
    states = [newest(place, training=False)[0].state for place in places]
    assert [state.config.train.seed for state in states] == [1337, 1338, 1339]
    assert [state.stage.number for state in states] == [1, 2, 3] and states[-1].progress.first_step == 24
    student = states[-1].config
    assert (student.model.dropout, student.optim.weight_decay, student.train.patience) == (0, 0.5, 0)
    for place, state in zip(places[:-1], states):
        (kept,) = steps(place)
        assert int(kept.name[5:]) == state.progress.best_step and not (kept / "training.safetensors").exists()
        assert state.config.model.dropout == 0.1 and "teachers" not in state.environment
    assert states[-1].environment["teachers"] == digest([restore_model(best(place)[0]) for place in places[:-1]])
    rows = logged(whole / "whole")
    assert [(row["stage"], row["step"]) for row in rows] == sorted((row["stage"], row["step"]) for row in rows)
    assert rows[-1]["stage"] == 3 and rows[-1]["step"] == 36
    assert all(len([*place.glob("events.out.*")]) == 1 for place in places)


def test_the_models_have_the_bits_of_runs_of_their_own(whole, text, tmp_path):
    """A second teacher is a run with its seed; the student is a run that was given its teachers."""
    assert run(text, tmp_path, "second", *REGULARIZED, "train.seed=1338") == 0
    kept = steps(whole / "whole" / "stage-2")[0]
    assert (kept / "model.safetensors").read_bytes() == (tmp_path / "second" / kept.name / "model.safetensors").read_bytes()
    named = [word for stage in (1, 2) for word in ("--teacher", str(steps(stage_folder(whole / "whole", stage))[0]))]
    assert run(text, tmp_path, "student", "optim.weight_decay=0.5", "train.seed=1339", *named) == 0
    assert bits(tmp_path / "student") == bits(whole / "whole" / "stage-3")


def copy_of(whole: Path, folder: Path, *, stage: int, step: int | None) -> Path:
    """The run as a kill left it in the model `stage` after its checkpoint of `step`; None: before its first checkpoint.

    The model before it is as it was then: with all its checkpoints, or at least with the state of its optimizer.
    """
    shutil.copytree(whole / "cache", folder / "cache")
    shutil.copytree(whole / "whole", folder / "killed")
    for later in range(stage, 4):
        for path in stage_folder(folder / "killed", later).glob("step-*"):
            if later > stage or step is None or int(path.name[5:]) > step:
                shutil.rmtree(path)
    return folder / "killed"


def test_a_student_that_was_killed_goes_on_to_the_same_bits_in_any_folder(whole, tmp_path):
    killed = copy_of(whole, tmp_path, stage=3, step=9)
    assert resume(killed) == 0
    assert bits(killed / "stage-3") == bits(whole / "whole" / "stage-3")
    assert logged_without_speed(killed) == logged_without_speed(whole / "whole")
    files = [folder / "config.yaml" for folder in (killed, whole / "whole")]
    assert files[0].read_text() == files[1].read_text()


class Killed(BaseException):
    """The process ends at once."""


BOUNDARIES = {
    "before the first save of a model": (Run, "begin_stage", lambda run, stage: stage == 2),
    "in the folder of a model": (Session, "save", lambda session: session.stage.number == 2),
    "before the teacher is cleared": (run_module, "keep_best_weights", lambda folder: folder.name == "killed"),
    "in the first step of a model": (Trainer, "advance", lambda trainer: trainer.progress.first_step == 12),
    "before the last one learns": (Session, "next_stage", lambda session: session.stage.number == 2),
}


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_kill_at_any_boundary_of_the_models_changes_no_bit(boundary, whole, text, tmp_path, monkeypatch):
    owner, name, is_there = BOUNDARIES[boundary]
    real = getattr(owner, name)

    def killing(*given: object, **named: object) -> object:
        if is_there(*given):
            raise Killed
        return real(*given, **named)

    monkeypatch.setattr(owner, name, killing)
    with pytest.raises(Killed):
        run(text, tmp_path, "killed", *REGULARIZED, "train.teachers=2")
    monkeypatch.undo()
    gc.collect()  # the lock of the run
    assert resume(tmp_path / "killed") == 0
    assert bits(tmp_path / "killed" / "stage-3") == bits(whole / "whole" / "stage-3")
    assert logged_without_speed(tmp_path / "killed") == logged_without_speed(whole / "whole")


def test_a_run_always_has_a_model_that_has_learned(whole, tmp_path, capsys):
    """Until the second model has taken a step, the first one is used, which says what it is."""
    for step, stage in ((0, 1), (3, 2)):
        folder = tmp_path / str(step)
        killed = copy_of(whole, folder, stage=3, step=None)
        shutil.rmtree(killed / "stage-2")
        (killed / "stage-2").mkdir()
        state = saved_state(step, number=2)
        publish(killed / "stage-2", weights=random_weights(step), training={}, state=state)
        found, warnings = find_checkpoint(str(killed), folder)
        assert found.state.stage.number == stage and ("stopped at model 1" in " ".join(map(str, warnings))) == (stage == 1)
    assert find_run(str(whole / "whole" / "stage-3"), tmp_path) == whole / "whole"
    assert find_checkpoint(str(whole / "whole" / "stage-2"), tmp_path)[0].state.stage.number == 2
    runs.main([str(whole / "whole")])
    assert "12 of 12, model 3 of 3" in capsys.readouterr().out


def test_the_last_model_is_trained_longer_and_what_the_models_are_stays(whole, tmp_path):
    killed = copy_of(whole, tmp_path, stage=3, step=12)
    with pytest.raises(UserError, match="train.teachers: 2 -> 1: cannot change in a run that has begun"):
        resume(killed, "train.teachers=1")
    gc.collect()
    assert resume(killed, "train.max_steps=15") == 0
    assert steps(killed / "stage-3")[-1].name == "step-00000015" and not (killed / "stage-4").exists()


@pytest.mark.parametrize("killed_at", [3, 6])
def test_a_run_that_was_killed_before_or_after_its_decision_decides_the_same(killed_at, text, tmp_path, capsys, monkeypatch):
    """The decision comes at step 6, and is saved at once."""
    leave_undecided(monkeypatch, gap=50)
    words = ["train.teachers=1", "checkpoint.keep=9"]
    assert run(text, tmp_path, "whole", *words) == 0
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    for path in (tmp_path / "killed").glob("step-*"):
        if path.name > f"step-{killed_at:08d}":
            shutil.rmtree(path)
    assert newest(tmp_path / "killed")[0].state.stage.models.is_decided == (killed_at == 6)
    said = [" ".join(capsys.readouterr().out.split())]
    assert resume(tmp_path / "killed") == 0
    said.append(" ".join(capsys.readouterr().out.split()))
    assert ["models one: this model does not memorise" in lines for lines in said] == [True, killed_at == 3]
    assert bits(tmp_path / "killed") == bits(tmp_path / "whole")


@pytest.mark.parametrize("stage", [1, 2])
def test_a_signal_stops_any_model_after_saving_and_the_rest_of_the_time_is_kept(stage, text, tmp_path):
    folder = tmp_path / "stopped"

    def stop() -> None:
        while not any(stage_folder(folder, stage).glob("step-00000010*")):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    watcher = threading.Thread(target=stop, daemon=True)
    watcher.start()
    ends = ["--minutes", "15", "train.max_epochs=7"]  # which end the first model
    length = ["--minutes", "30", "train.max_steps=100000"] if stage == 1 else ends
    rare = ["train.eval_interval=100", "checkpoint.interval=10"]
    assert run(text, tmp_path, "stopped", *length, *rare, "train.teachers=1") == 130
    watcher.join()
    state = newest(stage_folder(folder, stage))[0].state
    least, most = (400, 600) if stage == 1 else (700, 900)  # the second one has what the first has not used
    assert state.stage.number == stage and least < state.seconds_left < most
