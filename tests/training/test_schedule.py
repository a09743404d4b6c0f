"""The learning rate is a function of the step."""

import math

import pytest

from chargpt.config import OptimConfig
from chargpt.training.schedule import learning_rate


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("final_fraction", [0.0, 0.1])
def test_rate_climbs_to_its_peak_and_falls_to_its_end(schedule, final_fraction):
    config = OptimConfig(learning_rate=2.0, warmup_steps=10, schedule=schedule, final_fraction=final_fraction)
    rates = [learning_rate(step, config, max_steps=100) for step in range(101)]
    assert 0 < rates[0] < rates[5] < rates[9] < max(rates) == 2.0
    assert all(a >= b for a, b in zip(rates[10:], rates[11:]))
    assert rates[100] == pytest.approx(2.0 * final_fraction)
    assert rates[99] > rates[100]


def test_linear_holds_then_falls_in_a_straight_line():
    config = OptimConfig(learning_rate=1.0, warmup_steps=0, schedule="linear", decay_fraction=0.4)
    rates = [learning_rate(step, config, max_steps=100) for step in range(101)]
    assert set(rates[:61]) == {1.0}
    falls = [a - b for a, b in zip(rates[60:100], rates[61:])]
    assert max(falls) == pytest.approx(min(falls)) == pytest.approx(1 / 40)


def test_rates_are_those_of_the_formulas():
    cosine = OptimConfig(learning_rate=2.0, warmup_steps=4, schedule="cosine", final_fraction=0.1)
    rates = [learning_rate(step, cosine, max_steps=20) for step in range(25)]
    assert rates[:5] == pytest.approx([2 * i / 5 for i in range(1, 6)])  # the warm-up begins above 0 and ends at the peak
    falling = [2 * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * i / 16))) for i in range(17)]
    assert rates[4:] == pytest.approx(falling + [0.2] * 4)
    linear = OptimConfig(learning_rate=1.0, warmup_steps=0, schedule="linear", decay_fraction=0.4)
    assert [learning_rate(step, linear, max_steps=3) for step in range(4)] == pytest.approx([1, 1, 1 - 0.2 / 1.2, 0])
    assert learning_rate(1, OptimConfig(schedule="cosine"), max_steps=1) == 0


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_rate_is_defined_for_any_length_of_run(schedule):
    for max_steps in (1, 2, 5):
        config = OptimConfig(warmup_steps=3, schedule=schedule)
        assert all(0 <= learning_rate(step, config, max_steps=max_steps) <= 1 for step in range(10))


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_run_shorter_than_the_warm_up_reaches_the_peak_and_falls_too(schedule):
    config = OptimConfig(learning_rate=1.0, warmup_steps=100, schedule=schedule)
    rates = [learning_rate(step, config, max_steps=60) for step in range(60)]
    assert rates.index(max(rates)) == pytest.approx(30, abs=1) and max(rates) == pytest.approx(1.0, abs=0.05)
    assert rates[-1] < 0.05
