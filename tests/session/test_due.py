"""Each row of the table in Due, alone, with the row that forbids it."""

import dataclasses

import pytest
from helpers import apply_overrides, saved_state

from chargpt.config import Config
from chargpt.runs.stage import Length, Progress, Stage
from chargpt.session.due import Due
from chargpt.settings import Settings

CONFIG = apply_overrides(Config(), ["train.max_steps=1000", "train.eval_interval=100", "checkpoint.interval=50"])
EVALUATED = {"val_loss": 2.0, "best_loss": 1.5, "best_step": 0}
# Neither evaluated nor saved at this step, and not due: the rows change one thing each.
PROGRESS = Progress(step=110, evaluated=100, **EVALUATED)
SAVED = saved_state(100, config=CONFIG)


def due(*, config: Config = CONFIG, saved=SAVED, is_stopping=False, interval=0, **progress: object) -> Due:
    stage = Stage(length=Length.of(config))
    stage = dataclasses.replace(stage, length=dataclasses.replace(stage.length, interval=interval or stage.length.interval))
    return Due(dataclasses.replace(PROGRESS, **progress), config, stage, saved=saved, is_stopping=is_stopping)


def with_settings(*settings: str) -> Config:
    return apply_overrides(CONFIG, list(settings))


PATIENT = with_settings("train.patience=2")


def test_without_a_reason_nothing_is_due():
    asked = due()
    assert not (asked.decide_on_teachers or asked.evaluate or asked.save or asked.record or asked.sample)


EVALUATES = {
    "nothing evaluated yet": {"evaluated": None, "val_loss": None, "best_loss": None, "best_step": None},
    "an interval ago": {"step": 200},
    "a planned interval ago": {"interval": 10},
    "finished": {"without_gain": 2, "config": PATIENT},
}


@pytest.mark.parametrize("row", EVALUATES.values(), ids=EVALUATES)
def test_rows_of_evaluate(row):
    assert due(**row).evaluate
    assert not due(**{**row, "evaluated": row.get("step", PROGRESS.step), **EVALUATED}).evaluate  # this step is evaluated


SAVES = {
    "best": {"evaluated": 110, "best_step": 110},
    "saved before it was evaluated": {"saved": saved_state(110, config=CONFIG, val_loss=None)},
    "a planned evaluation": {"evaluated": 110, "interval": 5, "saved": None},
    "settings changed": {"config": with_settings("optim.learning_rate=0.5")},
    "length changed": {"interval": 50},
    "interval": {"step": 150},
    "finished": {"without_gain": 2, "config": PATIENT, "saved": saved_state(100, config=PATIENT)},
    "signal": {"is_stopping": True},
}


@pytest.mark.parametrize("row", SAVES.values(), ids=SAVES)
def test_rows_of_save(row):
    asked = due(**row)
    assert asked.save
    same = dataclasses.replace(SAVED, progress=asked.progress, settings=Settings(asked.config), stage=asked.stage)
    assert not due(**{**row, "saved": same}).save  # the newest checkpoint has all of this


def test_a_new_run_is_saved_at_its_beginning():
    assert due(step=0, evaluated=0, saved=None).save


def test_samples_are_written_early_until_an_evaluation_writes_them():
    often = with_settings("train.eval_interval=300")
    early = [step for step in range(1, 1001) if due(step=step, evaluated=0, config=often).sample]
    assert early == [1, 2, 5, 10, 20, 50, 100, 200]
    assert not due(step=5, evaluated=0, config=with_settings("train.sample_length=0")).sample
    assert not due(step=200, evaluated=199).sample
