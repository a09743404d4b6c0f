"""Settings with several values are several runs: one command trains and continues them, and those of one mean are grouped."""

import os
import signal

import pytest
from helpers import TINY_FILE, publish_run

import chargpt
import train
from chargpt.commands import runs as listing
from chargpt.config import Config, TrainConfig
from chargpt.errors import UserError
from chargpt.pages.report_page import curves, mean_line
from chargpt.planning.cli import parse_sweep
from chargpt.session.session import Session
from chargpt.settings import Settings, Source

SWEEP = ["train.seed=1,2", "optim.learning_rate=1e-3,3e-3", "optim.betas=0.9,0.95"]


def test_each_choice_is_a_run_that_is_named_by_what_differs():
    runs = parse_sweep(["poems.txt", *SWEEP, "--run", "a"])
    names = [f"a-seed-{seed}-learning_rate-{rate}" for seed in (1, 2) for rate in ("1e-3", "3e-3")]
    assert [options.run for options in runs] == names and all(options.continue_ for options in runs)
    assert [options.settings["train"]["seed"] for options in runs] == [1, 1, 2, 2]
    assert {options.settings["optim"]["betas"] for options in runs} == {(0.9, 0.95)}
    replaced = parse_sweep(["poems.txt", "model.bias=true,false", "--overwrite"])
    assert [(run.run, run.continue_) for run in replaced] == [("poems-bias-true", False), ("poems-bias-false", False)]
    assert [run.run for run in parse_sweep(["poems.txt", "train.seed=1"])] == [None]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train.seed=1,2,1"], "a value is given twice"),
        (["train.seed=1,2", "train.seed=7"], "train.seed: given twice; give it once"),
        (["train.seed=1,x"], "train.seed: 'x' given; use a whole number"),
        (["train.seed=1,"], "train.seed: '' given"),
        (["train.seed=1,2", "--resume"], "--resume: settings with several values are several runs"),
        (["train.seed=1,2", "--find-lr"], "--find-lr: settings"),
        (["train.sed=1,2"], "train.sed: no such key"),
        (["-", "train.seed=1,2"], "-: these are several runs, and standard input can be read once"),
    ],
)
def test_a_mistake_in_a_sweep_is_told_before_the_first_run(words, says):
    with pytest.raises(UserError, match=says):
        parse_sweep(["poems.txt", *words])


def test_the_same_command_trains_and_continues_the_runs_of_a_sweep(text, tmp_path, capsys, monkeypatch):
    words = [
        str(text),
        "--config",
        TINY_FILE,
        "train.max_steps=6",
        "train.seed=1,2",
        "runtime.threads=1",
        "train.sample_length=0",
    ]
    words += ["--run", str(tmp_path / "a"), f"data.cache={tmp_path}/cache", "optim.learning_rate=1e-3,1e39"]
    advance, steps = Session.advance, []

    def advanced(self):
        advance(self)
        steps.append(self.trainer.config.train.seed)
        if len(steps) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Session, "advance", advanced)
    assert train.main(words) == 143 and steps == [1, 1, 1]
    assert train.main(words) == 3, "the runs with a rate that loses all are no reason to leave out the others"
    states = {run.run: (run.state, run.step) for run in chargpt.runs(str(tmp_path / "a-*"))}
    assert states["a-seed-1-learning_rate-1e-3"] == states["a-seed-2-learning_rate-1e-3"] == ("finished", 6)
    assert states["a-seed-2-learning_rate-1e39"][0] == "failed"
    groups = {run.run: run.group for run in chargpt.runs(str(tmp_path / "a-*"))}
    assert len(set(groups.values())) == 2 and groups["a-seed-1-learning_rate-1e-3"] == groups["a-seed-2-learning_rate-1e-3"]


def test_runs_that_differ_by_their_seed_alone_have_a_mean(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(listing, "project_root", lambda: tmp_path)
    for seed, (rate, loss) in enumerate([(1e-3, 1.0), (1e-3, 2.0), (3e-3, 1.2), (3e-3, 1.4), (3e-3, 1.6), (2e-3, 1.0)]):
        tree = {"optim": {"learning_rate": rate}, "train": {"seed": seed}}
        settings = Settings(Config(train=TrainConfig(batch_size=1))).give(tree, source=Source.USER, where="")
        publish_run(tmp_path / "checkpoints" / f"run-{seed}", shape=settings.values.model, val_loss=loss, settings=settings)
    assert listing.main([]) == 0
    said = capsys.readouterr().out
    assert "run-0, run-1: loss 1.5000 ± 0.7071 over 2 seeds" in said
    assert "run-2, run-3, run-4: loss 1.4000 ± 0.2000 over 3 seeds" in said and said.count("over") == 2


def test_the_mean_of_curves_has_a_band_where_more_than_one_is():
    line = mean_line([[(0, 1.0), (10, 2.0)], [(0, 3.0), (10, 4.0), (20, 9.0)]], name="m", colour=3)
    assert line.points == [(0, 2.0), (10, 3.0)] and [round(high - low, 6) for _, low, high in line.band] == [2.828427] * 2
    assert curves([]) is None
