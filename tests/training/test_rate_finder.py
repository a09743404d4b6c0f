"""The search for a learning rate: where it looks, when it stops, what it suggests and draws."""

import math
import os
import signal

import numpy as np
import pytest
from PIL import Image

import train
from chargpt.terminal import UserError
from chargpt.training.rate_finder import FACTOR, LOWEST, draw, record, suggestion, sweep


def valley(lowest: float, *, width: float = 1.0):
    """A loss that is a parabola in the logarithm of the rate."""
    return lambda rate: 2 + 0.05 * (math.log2(rate / lowest) / width) ** 2


@pytest.mark.parametrize("lowest", [3e-4, 1e-3, 2.7e-3, 1e-2])
def test_it_finds_the_lowest_point_between_the_rates_that_it_tries(lowest):
    assert suggestion(list(sweep(valley(lowest)))) == pytest.approx(lowest, rel=1e-6)


def test_it_stops_when_a_rate_is_clearly_too_high_and_not_before():
    tried = list(sweep(valley(1e-3)))
    losses = [loss for _, loss in tried]
    assert losses[-1] > min(losses) + 0.3 >= losses[-2]
    assert all(high == pytest.approx(FACTOR * low) for (low, _), (high, _) in zip(tried, tried[1:]))


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_training_that_diverges_is_too_high_a_rate(wrong):
    tried = list(sweep(lambda rate: wrong if rate > 1e-3 else valley(1e-2)(rate)))
    assert tried[-1][1] == math.inf and sum(loss == math.inf for _, loss in tried) == 1
    assert suggestion(tried) == tried[-2][0]
    assert draw(tried).size == draw(tried[:-1]).size


def test_where_every_rate_is_worse_than_the_lowest_it_suggests_the_lowest():
    assert suggestion(list(sweep(valley(1e-5, width=4)))) == LOWEST


def test_the_suggestion_is_marked_where_it_is(tmp_path):
    path = record(list(sweep(valley(2.7e-3))), tmp_path / "folder")
    red = np.asarray(Image.open(path)).astype(int) @ [1, -1, -1] > 100
    columns = np.flatnonzero(red.sum(axis=0) > 200)
    curve = list(sweep(valley(2.7e-3)))
    low, high = math.log10(LOWEST), math.log10(curve[-1][0] * FACTOR**0.5)
    expected = 64 + (math.log10(2.7e-3) - low) / (high - low) * (720 - 128)
    assert len(columns) and abs(columns.mean() - expected) < 2
    assert list((tmp_path / "folder").glob("events.*"))


def test_find_lr_suggests_a_rate_and_leaves_no_run(text, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(train, "SWEEP_STEPS", 25)
    arguments = [str(text), "--config", "tiny", "--find-lr", "--run", f"{tmp_path}/found", f"data.cache={tmp_path}/cache"]
    assert train.main(arguments) == 0
    printed = capsys.readouterr().out
    rates = [float(line.split()[1].rstrip(":")) for line in printed.splitlines() if line.startswith("rate ")]
    suggested = float(printed.split("optim.learning_rate=")[1].split()[0])
    assert min(rates) <= suggested <= max(rates)
    assert {path.name.split(".")[0] for path in (tmp_path / "found-find-lr").iterdir()} == {"find-lr", "events"}
    assert train.main(arguments) == 0  # again, over what it has drawn
    assert capsys.readouterr().out.count("rate  ") == len(rates)
    arguments.remove("--find-lr")
    assert train.main([*arguments, "train.max_steps=5"]) == 0  # the name is free


def test_where_every_rate_diverges_it_says_so(text, tmp_path, monkeypatch):
    monkeypatch.setattr(train, "SWEEP_STEPS", 25)
    arguments = [str(text), "--config", "tiny", "--find-lr", "--run", f"{tmp_path}/x", f"data.cache={tmp_path}/cache"]
    with pytest.raises(UserError, match="every rate diverged"):
        train.main([*arguments, "optim.weight_decay=1e30"])


@pytest.mark.parametrize("name", ["..", ""])
def test_a_name_that_is_none_is_refused_before_anything_is_tried(text, tmp_path, name):
    with pytest.raises(UserError, match="--run"):
        train.main([str(text), "--config", "tiny", "--find-lr", "--run", name, f"data.cache={tmp_path}/cache"])


def test_a_signal_ends_the_sweep_and_what_there_is_is_drawn(text, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(train, "SWEEP_STEPS", 25)
    said = train.say

    def say(what: str, words: str) -> None:
        said(what, words)
        if what == "rate" and words.startswith("0.0004"):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(train, "say", say)
    arguments = [str(text), "--config", "tiny", "--find-lr", "--run", f"{tmp_path}/x", f"data.cache={tmp_path}/cache"]
    assert train.main(arguments) == 143
    assert (tmp_path / "x-find-lr" / "find-lr.png").exists() and "suggested" in capsys.readouterr().out


@pytest.mark.parametrize("with_it", [["--resume"], ["--minutes", "3"]])
def test_find_lr_alone(with_it):
    with pytest.raises(UserError, match="--find-lr"):
        train.parse_arguments(["--find-lr", *with_it])
