"""A second run follows a run that memorises its text; another one goes on to the end of the whole time, under its own name."""

import dataclasses
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
from helpers import TINY_FILE, Clock, apply_overrides, bits, last_step, logged
from session_helpers import clock_of_steps

import train
from chargpt.config import Config
from chargpt.interrupt import Interrupt
from chargpt.runs.checkpoint import newest
from chargpt.session.student import (
    STRETCHES,
    Losses,
    decided,
    decision_step,
    describe_decision,
    is_undecided,
    measure,
    memorises,
)
from chargpt.text.corpus import Corpus, load_corpus
from chargpt.training.initialisation import initial_model
from chargpt.training.runtime import choose_runtime
from chargpt.training.trainer import Trainer

UNDECIDED = ["train.student_minutes=0.02", "train.student_gap=0.1"]
TINY = [
    "--config",
    TINY_FILE,
    *"train.max_steps=40 train.eval_interval=20 checkpoint.interval=10 train.sample_length=0 runtime.threads=1".split(),
]


@pytest.fixture(scope="module")
def corpus(text, tmp_path_factory) -> Corpus:
    folder = tmp_path_factory.mktemp("corpus")
    return load_corpus([str(text)], apply_overrides(Config(), [f"data.cache={folder}"]).data, root=folder, block_size=16)


def new_trainer(corpus: Corpus, *settings: str) -> Trainer:
    shape = ["model.n_layer=1", "model.n_embd=32", "model.n_head=1", "model.block_size=16", "train.batch_size=8"]
    config = apply_overrides(Config(), [*shape, "train.max_steps=100", "runtime.precision=float32", *UNDECIDED, *settings])
    torch.manual_seed(0)
    model = initial_model(config.model, corpus.tokenizer.vocab_size)
    return Trainer(model, corpus.train, config, runtime=choose_runtime(config))


def test_the_losses_are_those_of_equal_amounts_of_text_and_measuring_changes_nothing(corpus):
    """A training split that repeats the validation split has the same loss, and one of other characters has not."""
    trainer = new_trainer(corpus, "model.dropout=0.5")
    same = dataclasses.replace(corpus, train=np.tile(corpus.val, 9), val=np.tile(corpus.val, STRETCHES))
    before, randomness = trainer.weights.vector.clone(), torch.get_rng_state()
    losses = measure(trainer, same, Interrupt())
    assert losses.training == pytest.approx(losses.validation, abs=0.02) and losses == measure(trainer, same, Interrupt())
    assert torch.equal(before, trainer.weights.vector) and torch.equal(randomness, torch.get_rng_state())
    assert trainer.weights.working.training and trainer.progress.step == 0
    trainer, counted = new_trainer(corpus, "runtime.step=torch"), []
    trainer.weights.working.register_forward_hook(lambda model, inputs, _: counted.append(inputs[0].numel()))
    measure(trainer, corpus, Interrupt())
    assert sum(counted) - (len(corpus.val) - 1) == pytest.approx(len(corpus.val), rel=0.02)


def test_the_losses_of_a_list_are_those_of_whole_items(tmp_path):
    names = [f"{label},{'abcde'[i % 5] * (i % 7 + 1)}{i}" for i, label in enumerate(["elf", "orc"] * 100)]
    (tmp_path / "names.csv").write_text("race,name\n" + "\n".join(names))
    settings = ["data.items=name", "data.label=race", f"data.cache={tmp_path}"]
    data = apply_overrides(Config(), settings).data
    corpus = load_corpus([f"{tmp_path}/names.csv"], data, root=tmp_path, block_size=16)
    trainer = new_trainer(corpus)
    same = measure(trainer, dataclasses.replace(corpus, train=np.tile(corpus.val, 3)), Interrupt())
    assert same.training == same.validation > 1
    longer = np.concatenate((corpus.train[:4], np.tile(corpus.train[4:6], 500), corpus.train))  # its first item is long
    assert measure(trainer, dataclasses.replace(corpus, train=longer), Interrupt()).training > 1


def test_a_model_that_knows_its_text_by_heart_gets_a_second_run_and_one_that_does_not_goes_on(corpus):
    short = dataclasses.replace(corpus, train=corpus.train[:120])
    trainer = new_trainer(short, "optim.learning_rate=0.01", "optim.warmup_steps=5")
    fresh = measure(trainer, short, Interrupt())
    while not trainer.is_finished:
        trainer.step()
    trained = measure(trainer, short, Interrupt())
    assert not memorises(fresh, trainer.config) and memorises(trained, trainer.config)
    assert trained.training < 1.3 < 2 < trained.validation


def test_the_decision_keeps_the_plan_or_makes_one_long_run():
    config = apply_overrides(Config(), [*UNDECIDED, "train.max_epochs=30"])
    taught, alone = decided(Losses(1.0, 1.1001), config), decided(Losses(1.0, 1.0999), config)
    assert taught == apply_overrides(config, ["train.student_gap=0"])
    assert alone == apply_overrides(config, ["train.student_gap=0", "train.student_minutes=0", "train.max_epochs=60"])
    assert not is_undecided(taught) and not is_undecided(alone) and is_undecided(config)
    assert decided(Losses(float("nan"), 1.0), config) == taught
    said = [describe_decision(losses, config) for losses in (Losses(1.0, 1.2), Losses(1.0, 1.0))]
    assert [notice.label for notice in said] == ["two runs", "one run"]
    assert "1.00 on training text and 1.20 on validation text" in said[0][1] and "memorise" in said[0][1]
    assert "goes on" in said[1][1]
    for given in (0, 20):
        assert decided(Losses(1.0, 1.0), apply_overrides(config, [f"train.max_epochs={given}"])).train.max_epochs == given


@pytest.mark.parametrize(
    ("settings", "step"),
    [
        (["optim.warmup_steps=10"], 45),
        (["optim.decay_fraction=0.2"], 72),
        (["optim.decay_fraction=1", "optim.warmup_steps=10"], 20),
        (["optim.schedule=cosine", "optim.warmup_steps=30"], 30),
    ],
)
def test_the_decision_comes_before_the_rate_falls(settings, step, corpus):
    trainer = new_trainer(corpus, *settings)
    assert math.ceil(decision_step(trainer.config)) == step


def run(text: Path, folder: Path, name: str, *words: str) -> int:
    return train.main([str(text), *TINY, "--run", f"{folder}/{name}", f"data.cache={folder}/cache", *words])


@pytest.fixture
def clock(monkeypatch) -> Clock:
    return clock_of_steps(monkeypatch, seconds=0.05)


def test_a_run_that_does_not_memorise_goes_on_for_the_whole_time_under_its_name(text, tmp_path, capsys, clock):
    words = ["--minutes", "0.1", "train.student_minutes=0.2", "train.student_gap=50", "train.log_interval=1"]
    started = clock.now
    assert run(text, tmp_path, "whole", *words) == 0
    took, out = clock.now - started, " ".join(capsys.readouterr().out.split())
    assert "one run the loss is" in out and "second run " not in out.partition("one run")[2].replace("no second run", "")
    assert not (tmp_path / "whole-teacher").exists()
    config = newest(tmp_path / "whole")[0].state.config
    assert config.train.student_minutes == config.train.student_gap == 0
    rates = [line["lr"] for line in logged(tmp_path / "whole") if "lr" in line]
    peak = rates.index(max(rates))
    assert all(later <= rate for rate, later in zip(rates[peak:], rates[peak + 1 :]))
    assert 14 < took <= 18  # all of the 18 seconds, but for what is kept back for the end
    assert rates[-1] < 0.05 * max(rates)


def test_a_run_that_memorises_becomes_the_teacher_of_a_second_one(text, tmp_path, capsys):
    """The validation text has other words."""
    (tmp_path / "other.txt").write_text("".join(reversed(text.read_text(encoding="utf-8")[:3000])), encoding="utf-8")
    words = [*UNDECIDED, f"data.val_text={tmp_path}/other.txt"]
    lines = tmp_path / "lines.txt"
    lines.write_bytes(text.read_bytes().replace(b"\n", b"\r\n"))
    assert run(lines, tmp_path, "both", *words) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("the setting data.newlines") == 1  # a note on the text is for both
    assert "two runs the loss is" in out and "both learns from" in out
    assert last_step(tmp_path / "both-teacher").name == "step-00000040" and last_step(tmp_path / "both")


@pytest.mark.parametrize("killed_at", [10, 18])
def test_a_run_that_was_killed_before_or_after_its_decision_decides_the_same(killed_at, text, tmp_path, capsys):
    """The decision comes at step 18, and is saved at once."""
    words = ["train.student_minutes=0.02", "train.student_gap=50", "checkpoint.keep=9"]
    assert run(text, tmp_path, "whole", *words) == 0
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    for path in (tmp_path / "killed").glob("step-*"):
        if path.name > f"step-{killed_at:08d}":
            shutil.rmtree(path)
    assert is_undecided(newest(tmp_path / "killed")[0].state.config) == (killed_at == 10)
    said = [" ".join(capsys.readouterr().out.split())]
    assert train.main(["--resume", "--run", f"{tmp_path}/killed", f"data.cache={tmp_path}/cache"]) == 0
    said.append(" ".join(capsys.readouterr().out.split()))
    assert ["one run the loss is" in lines for lines in said] == [True, killed_at == 10]
    assert bits(tmp_path / "killed") == bits(tmp_path / "whole")
    assert not list(tmp_path.glob("*-teacher"))


def test_an_undecided_run_keeps_the_rest_of_its_time_when_it_is_stopped(text, tmp_path):
    folder = tmp_path / "stopped"

    def stop() -> None:
        while not any(folder.glob("step-00000010*")):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    watcher = threading.Thread(target=stop, daemon=True)
    watcher.start()
    words = ["--minutes", "10", "train.max_steps=100000", "train.student_minutes=1", "train.student_gap=50"]
    assert run(text, tmp_path, "stopped", *words) == 130
    watcher.join()
    state = newest(folder)[0].state
    assert is_undecided(state.config) and 400 < state.seconds_left < 600
