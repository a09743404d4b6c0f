"""The search for a learning rate: where it looks, when it stops, what it suggests and records."""

import math
import os
import re
import signal

import pytest
import torch
from session_helpers import planned
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import train
from chargpt.errors import UserError
from chargpt.interrupt import Interrupt
from chargpt.notices import Kind
from chargpt.session import rate_finder
from chargpt.session.rate_finder import FACTOR, HOPELESS, MAX_RATES, try_rates

SMALL = ["--config", "tiny", "model.n_layer=1", "model.n_embd=8", "model.block_size=8", "train.batch_size=2"]


@pytest.fixture(autouse=True)
def short(monkeypatch) -> None:
    """Sweeps with a tenth of the steps."""
    monkeypatch.setattr(rate_finder, "STEPS", 20)


def test_it_stops_when_a_rate_is_clearly_too_high_and_not_before(text, tmp_path, monkeypatch):
    """Each rate starts from the same weights and sees the same batches."""
    plan = planned(text, tmp_path, *SMALL, "--find-lr")
    before = plan.model.state_dict()["norm.weight"].clone()
    curve, again = (list(try_rates(plan, steps=6, interrupt=Interrupt())) for _ in range(2))
    assert curve == again and torch.equal(before, plan.model.state_dict()["norm.weight"])
    assert all((len(losses) == 6) == (loss < math.inf) for _, loss, losses in curve)
    losses = [loss for _, loss, _ in curve]
    assert all(loss <= min(losses[: i + 1]) + HOPELESS for i, loss in enumerate(losses[:-1]))
    assert len(curve) == MAX_RATES or losses[-1] > min(losses) + HOPELESS
    assert all(high[0] == pytest.approx(FACTOR * low[0]) for low, high in zip(curve, curve[1:]))
    monkeypatch.setattr(rate_finder, "HOPELESS", -1.0)
    assert len([*try_rates(plan, steps=2, interrupt=Interrupt())]) == 1


@pytest.mark.parametrize("longer", [1, 10, 100])
def test_the_pull_to_the_first_weights_is_as_strong_in_the_sweep_as_in_the_run(longer, text, tmp_path, monkeypatch):
    """Over all its steps: a sweep is shorter, so each of its steps pulls more."""
    pulls, trainer = [], rate_finder.Trainer
    monkeypatch.setattr(rate_finder, "Trainer", lambda *given, **more: pulls.append(given[2]) or trainer(*given, **more))
    plan = planned(text, tmp_path, *SMALL, "optim.start_decay=0.001", f"train.max_steps={5 * longer}", "--find-lr")
    with Interrupt("") as interrupt:
        next(try_rates(plan, steps=5, interrupt=interrupt))
    (config,) = pulls
    assert config.optim.start_decay * config.train.max_steps == pytest.approx(0.001 * 5 * longer)


def test_find_lr_suggests_a_rate_and_leaves_a_curve_for_each_rate(text, tmp_path, capsys):
    arguments = [str(text), *SMALL, "--find-lr", "--run", f"{tmp_path}/runs/found", f"data.cache={tmp_path}/cache"]
    earlier = tmp_path / "runs" / "found-find-lr" / "rate-9.0000" / "events.out.tfevents.1"
    earlier.parent.mkdir(parents=True)
    earlier.write_text("of an earlier sweep")
    assert train.main(arguments) == 0
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["found-find-lr"] and not earlier.exists()
    printed = capsys.readouterr().out
    rates = [float(line.split()[3].rstrip(":")) for line in printed.splitlines() if line.startswith("tried ")]
    suggested = float(printed.split("optim.learning_rate=")[1].split()[0])
    assert min(rates) <= suggested <= max(rates)
    assert f"{suggested:.4f}: loss {min(re.findall('loss ([0-9.]+)', printed))}" in printed
    for rate in rates[::6]:
        (events,) = (tmp_path / "runs" / "found-find-lr" / f"rate-{rate:.4f}").iterdir()
        recorded = EventAccumulator(str(events)).Reload().Scalars("find-lr/loss")
        losses = [event.value for event in recorded]
        assert [event.step for event in recorded] == list(range(1, rate_finder.STEPS + 1))
        assert f"{rate:.4f}: loss {sum(losses[-20:]) / 20:.3f}" in printed
    arguments.remove("--find-lr")
    assert train.main([*arguments, "train.max_steps=5"]) == 0  # the name is free


def test_where_every_rate_diverges_it_says_so(text, tmp_path):
    arguments = [str(text), *SMALL, "--find-lr", "--run", f"{tmp_path}/x", f"data.cache={tmp_path}/cache"]
    with pytest.raises(UserError, match="fails at every learning rate.*; undo"):
        train.main([*arguments, "optim.weight_decay=1e30"])


def test_a_signal_ends_the_sweep_and_what_there_is_is_recorded(text, tmp_path, capfd, monkeypatch):
    notice = rate_finder.notice

    def notice_and_stop(kind: Kind, words: str) -> None:
        notice(kind, words)
        if kind is Kind.TRIED and words.startswith("learning rate 0.0004"):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(rate_finder, "notice", notice_and_stop)
    arguments = [str(text), *SMALL, "--find-lr", "--run", f"{tmp_path}/x", f"data.cache={tmp_path}/cache"]
    assert train.main(arguments) == 143
    assert len(list((tmp_path / "x-find-lr").glob("rate-*/events*"))) >= 3
    captured = capfd.readouterr()
    assert "suggested" in captured.out and "saved" not in captured.err
