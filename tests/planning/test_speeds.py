"""What is known of this machine's speed: by earlier runs, by a few steps, and for other sizes; a wrong entry does no harm."""

import dataclasses
import json
import os
from pathlib import Path

import pytest
from helpers import apply_overrides, given

from chargpt.config import Config, DataConfig
from chargpt.planning import law
from chargpt.planning import speeds as module
from chargpt.planning.chosen_for_time import Job, choose, in_blocks
from chargpt.planning.law import SHAPES
from chargpt.planning.speeds import STEP_TIME_EXPONENT, Speeds
from chargpt.runs.checkpoint_schema import parameter_count
from chargpt.text.corpus import Corpus, load_corpus

SHAPE = ["runtime.threads=1", "runtime.device=cpu", "model.n_head=1", "model.block_size=16"]


@pytest.fixture
def corpus(text, tmp_path) -> Corpus:
    return load_corpus([str(text)], DataConfig(cache=str(tmp_path / "cache")), root=tmp_path, block_size=16)


@pytest.fixture
def machine(monkeypatch, tmp_path) -> list[Config]:
    """What was timed on a machine whose speed falls as the parameters grow, and whose speeds nobody knows yet."""
    timed: list[Config] = []

    def training_speed(config: Config, corpus: Corpus, teachers: object) -> float:
        timed.append(config)
        return real(config, corpus)

    monkeypatch.setattr(module, "training_speed", training_speed)
    monkeypatch.setattr(module, "speeds_file", lambda: tmp_path / "cache" / "speeds.json")
    return timed


def real(config: Config, corpus: Corpus) -> float:
    return 1e5 * (1e5 / parameter_count(config.model, corpus.tokenizer.vocab_size)) ** 0.7


def of_width(width: int, *settings: str) -> Config:
    return apply_overrides(Config(), [*SHAPE, f"model.n_embd={width}", *settings])


def chosen(corpus: Corpus) -> Config:
    return choose(given("runtime.threads=1", "runtime.device=cpu"), Job(corpus, 60.0), optimizer="muon").config


def test_a_new_machine_times_two_or_three_sizes_and_one_that_has_trained_times_nothing(corpus, machine):
    first = chosen(corpus)
    assert 1 <= len(machine) <= 3
    machine.clear()
    again = chosen(corpus)
    assert not machine and again.model == dataclasses.replace(first.model, dropout=again.model.dropout)


def test_the_speed_of_another_size_follows_from_those_next_to_it(corpus, machine):
    speeds = Speeds(corpus)
    for width in (32, 128):
        speeds.measured(of_width(width))
    between = of_width(64)
    assert speeds.expected(between) == pytest.approx(real(between, corpus), rel=0.01)
    larger = of_width(512)
    sizes = parameter_count(larger.model, 31) / parameter_count(of_width(128).model, 31)
    assert sizes > 4 and speeds.expected(larger) == pytest.approx(real(larger, corpus), rel=0.01)
    module.speeds_file().unlink()
    alone = Speeds(corpus)
    alone.measured(of_width(128))
    assert alone.expected(larger) == pytest.approx(real(of_width(128), corpus) / sizes**STEP_TIME_EXPONENT, rel=0.01)
    assert speeds.is_known(of_width(128)) and not speeds.is_known(larger)


OTHERS = {
    "threads": ["runtime.threads=2"],
    "optimizer": ["optim.name=muon"],
    "precision": ["runtime.precision=bfloat16"],
    "steps by torch": ["runtime.step=torch"],
}


@pytest.mark.parametrize("other", OTHERS)
def test_what_is_known_of_one_kind_of_training_is_no_speed_of_another(other, corpus, machine):
    speeds = Speeds(corpus)
    speeds.keep(of_width(64, "runtime.precision=float32"), 12345.0)
    assert Speeds(corpus).measured(of_width(64, "runtime.precision=float32")) == 12345.0 and not machine
    another = of_width(64, "runtime.precision=float32", *OTHERS[other])
    assert not Speeds(corpus).is_known(another)
    Speeds(corpus).measured(another)
    assert len(machine) == 1


@pytest.mark.parametrize("factor", [1 / 3, 3.0])
def test_a_speed_that_is_wrong_is_that_of_the_next_run_afterwards_and_of_no_other(factor, corpus, machine):
    """One that was measured beside other programs, or on a battery."""
    for width in (32, 128):
        Speeds(corpus).keep(of_width(width), real(of_width(width), corpus))
    for _ in range(10):
        for measured in (1.0, factor, 1.0):
            Speeds(corpus).keep(of_width(32), measured * real(of_width(32), corpus))
    for width in (32, 128):
        assert Speeds(corpus).measured(of_width(width)) == pytest.approx(real(of_width(width), corpus))


@pytest.mark.parametrize("factor", [1 / 3, 3.0])
def test_speeds_that_are_three_times_too_low_or_too_high_cost_little(factor, corpus, machine):
    """By the law, at the speeds that the machine really has."""
    right = chosen(corpus)
    known = [timed._replace(speed=factor * timed.speed) for timed in module._read()]
    module.speeds_file().write_text(json.dumps(known))
    wrong, text = chosen(corpus), Job(corpus, 60.0).text
    losses = [
        law.expected_loss(text, parameters=in_blocks(config), seen=60.0 * real(config, corpus), optimizer="muon")
        for config in (right, wrong)
    ]
    assert known and losses[1] <= losses[0] + 0.05


NUMBERS = ["-1, 1.0", "1, 1e999", "1, 1e308", "1, 5e-324", f"{10**30}, 1.0", "1.5, 1.0", "1, true"]
DAMAGED = ["", "{", "null", "[1]", '{"a": 1}', "[" * 5000, "\0", *(f'[["a", "b", "c", {numbers}]]' for numbers in NUMBERS)]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_is_as_none_and_is_replaced(content, corpus, machine, tmp_path):
    path = module.speeds_file()
    path.write_text(content)
    Speeds(corpus).keep(of_width(32), 5.0)
    assert [entry[-1] for entry in json.loads(path.read_text())] == [5.0]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs the named pipes of POSIX")
def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(corpus, machine):
    os.mkfifo(module.speeds_file())
    assert Speeds(corpus).measured(of_width(32)) == pytest.approx(real(of_width(32), corpus))


def test_where_nothing_can_be_kept_a_run_is_timed_again(corpus, machine, monkeypatch):
    monkeypatch.setattr(module, "speeds_file", lambda: Path(__file__) / "speeds.json")
    Speeds(corpus).keep(of_width(32), 5.0)
    assert Speeds(corpus).measured(of_width(32)) == pytest.approx(real(of_width(32), corpus))


def test_the_file_stays_small(corpus, machine):
    module.speeds_file().write_text(json.dumps([["a", "b", str(n), 1, 1.0] for n in range(2 * module.MOST_KEPT)]))
    Speeds(corpus).keep(of_width(32), 5.0)
    kept = json.loads(module.speeds_file().read_text())
    assert len(kept) == module.MOST_KEPT and kept[-1][-1] == 5.0
    assert len(SHAPES) < module.MOST_KEPT
