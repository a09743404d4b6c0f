"""The search for a learning rate: where it looks, when it stops, what it suggests and records."""

import dataclasses
import math
import os
import signal

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import train
from chargpt.config import Config, TrainConfig
from chargpt.interrupt import Interrupt
from chargpt.model import GPT, GPTConfig
from chargpt.session import rate_finder
from chargpt.session.rate_finder import FACTOR, HOPELESS, MAX_RATES, MIN_RATE, short_config, suggestion, try_rates
from chargpt.terminal import UserError
from chargpt.training.runtime import choose_runtime

CONFIG = Config(model=GPTConfig(n_layer=1, n_head=1, n_embd=8, block_size=8), train=TrainConfig(batch_size=2))
SMALL = ["--config", "tiny", "model.n_layer=1", "model.n_embd=8", "model.block_size=8", "train.batch_size=2"]


def valley(lowest: float, *, width: float = 1.0) -> list[tuple[float, float]]:
    """A curve whose loss is a parabola in the logarithm of the rate."""
    rates = [MIN_RATE * FACTOR**i for i in range(MAX_RATES)]
    return [(rate, 2 + 0.05 * (math.log2(rate / lowest) / width) ** 2) for rate in rates]


@pytest.mark.parametrize("lowest", [3e-4, 1e-3, 2.7e-3, 1e-2])
def test_it_suggests_the_lowest_point_between_the_rates_that_were_tried(lowest):
    assert suggestion(valley(lowest)) == pytest.approx(lowest, rel=1e-6)


def tried(config: Config, interrupt: Interrupt | None = None) -> list[tuple[float, float]]:
    """The curve of a tiny model on random text, with 10 steps at each rate."""
    torch.manual_seed(0)
    model, ids = GPT(config.model, 7), np.random.default_rng(0).integers(0, 7, 2000).astype(np.uint8)
    before = model.state_dict()["norm.weight"].clone()
    runtime = choose_runtime(config)
    short = short_config(config, steps=10)
    found = list(try_rates(model, ids, short, runtime=runtime, interrupt=interrupt or Interrupt()))
    assert torch.equal(before, model.state_dict()["norm.weight"])
    assert all((len(losses) == 10) == (loss < math.inf) for _, loss, losses in found)
    return [(rate, loss) for rate, loss, _ in found]


def test_it_stops_when_a_rate_is_clearly_too_high_and_not_before():
    curve = tried(CONFIG)
    assert curve == tried(CONFIG), "each rate starts from the same weights and sees the same batches"
    losses = [loss for _, loss in curve]
    assert all(loss <= min(losses[: i + 1]) + HOPELESS for i, loss in enumerate(losses[:-1]))
    assert len(curve) == MAX_RATES or losses[-1] > min(losses) + HOPELESS
    assert all(high == pytest.approx(FACTOR * low) for (low, _), (high, _) in zip(curve, curve[1:]))


def test_a_training_that_diverges_is_too_high_a_rate():
    curve = tried(dataclasses.replace(CONFIG, optim=dataclasses.replace(CONFIG.optim, weight_decay=1e30)))
    assert len(curve) == MAX_RATES and all(loss == math.inf for _, loss in curve)
    curve = [*valley(1e-2)[:4], (MIN_RATE * FACTOR**4, math.inf)]
    assert suggestion(curve) == curve[-2][0]


def test_where_every_rate_is_worse_than_the_lowest_it_suggests_the_lowest():
    assert suggestion(valley(1e-5, width=4)) == MIN_RATE


def test_find_lr_suggests_a_rate_and_leaves_a_curve_for_each_rate(text, tmp_path, capsys):
    arguments = [str(text), *SMALL, "--find-lr", "--run", f"{tmp_path}/runs/found", f"data.cache={tmp_path}/cache"]
    earlier = tmp_path / "runs" / "found-find-lr" / "rate-9.0000" / "events.out.tfevents.1"
    earlier.parent.mkdir(parents=True)
    earlier.write_text("of an earlier sweep")
    assert train.main(arguments) == 0
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["found-find-lr"] and not earlier.exists()
    printed = capsys.readouterr().out
    rates = [float(line.split()[1].rstrip(":")) for line in printed.splitlines() if line.startswith("rate ")]
    suggested = float(printed.split("optim.learning_rate=")[1].split()[0])
    assert min(rates) <= suggested <= max(rates)
    for rate in rates[::6]:
        (events,) = (tmp_path / "runs" / "found-find-lr" / f"rate-{rate:.4f}").iterdir()
        recorded = EventAccumulator(str(events)).Reload().Scalars("find-lr/loss")
        losses = [event.value for event in recorded]
        assert [event.step for event in recorded] == list(range(1, 201))
        assert f"{rate:.4f}: loss {sum(losses[-20:]) / 20:.3f}" in printed
    arguments.remove("--find-lr")
    assert train.main([*arguments, "train.max_steps=5"]) == 0  # the name is free


def test_where_every_rate_diverges_it_says_so(text, tmp_path):
    arguments = [str(text), *SMALL, "--find-lr", "--run", f"{tmp_path}/x", f"data.cache={tmp_path}/cache"]
    with pytest.raises(UserError, match="every rate diverged"):
        train.main([*arguments, "optim.weight_decay=1e30"])


def test_a_signal_ends_the_sweep_and_what_there_is_is_recorded(text, tmp_path, capfd, monkeypatch):
    notice = rate_finder.notice

    def notice_and_stop(what: str, words: str) -> None:
        notice(what, words)
        if what == "rate" and words.startswith("0.0004"):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(rate_finder, "notice", notice_and_stop)
    arguments = [str(text), *SMALL, "--find-lr", "--run", f"{tmp_path}/x", f"data.cache={tmp_path}/cache"]
    assert train.main(arguments) == 143
    assert len(list((tmp_path / "x-find-lr").glob("rate-*/events*"))) >= 3
    captured = capfd.readouterr()
    assert "suggested" in captured.out and "saved" not in captured.err
