"""A run says of itself that it trains, has stopped, failed or is finished, in its folder, in `runs` and in its log."""

import pytest
from helpers import TINY_FILE, log_of
from session_helpers import stopped_after

import chargpt
import train
from chargpt.errors import NoSpace
from chargpt.runs import metrics
from chargpt.runs.listing import LOST
from chargpt.runs.run import Run
from chargpt.session import journal
from chargpt.session.session import Session

TINY = ["--config", TINY_FILE, "train.max_steps=12", "train.eval_interval=4", "runtime.threads=1", "train.sample_length=0"]
LOST_LOSS = ["optim.learning_rate=1e39", "optim.warmup_steps=0", "optim.start_decay=0"]


@pytest.fixture
def trained(text, tmp_path, monkeypatch):
    """Train a run of this name; it gets a signal at step `stop`. Returns what `chargpt.runs` says of it, and its events."""

    def run(name: str, *words: str, stop: int = 0) -> tuple[chargpt.RunState, list[dict]]:
        with stopped_after(stop):
            folder = tmp_path / name
            train.main([str(text), *TINY, "--run", str(folder), f"data.cache={tmp_path}/cache", *words])
        return chargpt.runs(folder)[0], [line for line in log_of(folder) if "state" in line]

    return run


def test_the_end_and_a_stop_are_said_and_a_run_that_goes_on_keeps_what_was(trained, tmp_path):
    state, events = trained("run", "--continue", stop=7)
    assert (state.state, state.step, state.steps, state.reason) == ("stopped", 7, 12, "") and state.path == str(
        tmp_path / "run"
    )
    state, events = trained("run", "--continue")
    assert (state.state, state.step) == ("finished", 12) and state.loss > 0
    assert [(event["state"], event["step"]) for event in events] == [("stopped", 7), ("finished", 12)]


def test_a_killed_run_is_no_longer_in_training(trained, tmp_path):
    trained("run", stop=7)
    metrics.Status(state="training", step=9, steps=12).write(tmp_path / "run")  # as the last one that lived
    (state,) = chargpt.runs(tmp_path / "run")
    assert (state.state, state.reason, state.step) == ("stopped", LOST, 7)


def test_while_it_trains_it_says_how_far_it_is_and_how_long_it_takes(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "HEARTBEAT", 0.0)
    monkeypatch.setattr(journal, "APART", 0.0)
    advance, seen = Session.advance, []

    def advanced(self):
        advance(self)
        seen.extend(chargpt.runs(tmp_path / "run"))

    monkeypatch.setattr(Session, "advance", advanced)
    trained("run", "train.max_steps=3", stop=-1)
    assert [(run.state, run.step, run.steps) for run in seen] == [("training", step, 3) for step in (1, 2, 3)]
    assert all(run.seconds_left is not None for run in seen)


@pytest.mark.parametrize("what", ["stop", "rollback"])
def test_a_loss_that_is_not_finite_is_said_with_its_reason_even_if_the_run_goes_on(what, trained):
    state, events = trained("run", *LOST_LOSS, f"train.on_nonfinite={what}")
    assert state.state == "failed" and state.reason.startswith("step ") and "nan" in state.reason
    assert [event["state"] for event in events] == ["failed"] * (1 if what == "stop" else len(events)) and events
    assert events[0]["reason"] == state.reason or what == "rollback"


def test_a_disk_that_is_full_is_the_reason(trained, tmp_path, monkeypatch):
    save = Run.save

    def full(self, state, **more):
        if state.progress.step:
            raise NoSpace("disk: full; free some")
        return save(self, state, **more)

    monkeypatch.setattr(Run, "save", full)
    with pytest.raises(NoSpace):
        trained("run")
    (state,) = chargpt.runs(tmp_path / "run")
    assert state.state == "failed" and state.reason.startswith("disk: full; free some")
