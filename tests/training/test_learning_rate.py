"""The learning rate is a function of the step."""

import dataclasses
import math

import pytest
from helpers import length_of
from hypothesis import assume, given
from hypothesis import strategies as st

from chargpt.config import OptimConfig
from chargpt.training.learning_rate import change_length, is_falling, learning_rate


def test_rates_are_those_of_the_formulas():
    cosine = OptimConfig(learning_rate=2.0, warmup_steps=4, schedule="cosine", final_fraction=0.1)
    rates = [learning_rate(step, cosine, length_of(cosine, 20)) for step in range(25)]
    assert rates[:5] == pytest.approx([2 * i / 5 for i in range(1, 6)])  # the warm-up begins above 0 and ends at the peak
    falling = [2 * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * i / 16))) for i in range(17)]
    assert rates[4:] == pytest.approx(falling + [0.2] * 4)
    linear = OptimConfig(learning_rate=1.0, warmup_steps=0, schedule="linear", decay_fraction=0.4)
    assert [learning_rate(step, linear, length_of(linear, 3)) for step in range(4)] == pytest.approx([1, 1, 1 - 0.2 / 1.2, 0])
    assert learning_rate(1, cosine, length_of(cosine, 1)) == 0.2


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_run_shorter_than_the_warm_up_reaches_the_peak_and_falls_too(schedule):
    config = OptimConfig(learning_rate=1.0, warmup_steps=100, schedule=schedule)
    rates = [learning_rate(step, config, length_of(config, 60)) for step in range(60)]
    assert rates.index(max(rates)) == pytest.approx(30, abs=1) and max(rates) == pytest.approx(1.0, abs=0.05)
    assert rates[-1] < 0.05


plans = st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.05, 20.0)), max_size=6)


@given(st.sampled_from(["linear", "cosine"]), st.floats(0.0, 1.0), st.integers(0, 50), st.sampled_from([0.0, 0.1]), plans)
def test_after_the_warm_up_the_rate_never_rises_however_often_the_length_is_planned_again(
    schedule, decay_fraction, warmup, final_fraction, plans
):
    """Each plan comes after a share of the steps that were left, and makes that rest longer or shorter by a factor."""
    config = OptimConfig(
        warmup_steps=warmup, schedule=schedule, decay_fraction=decay_fraction, final_fraction=final_fraction, learning_rate=1.0
    )
    step, length, rates = 0, length_of(config, 60), []
    for share, factor in [*plans, (1.0, 1.0)]:
        for _ in range(int(share * (length.steps - step))):
            rates.append((learning_rate(step, config, length), step >= length.warmup))
            step += 1
        longer = min(2000, step + max(1, int(factor * (length.steps - step))))
        length = change_length(length, config, step=step, steps=longer, interval=1)
    first = next((place for place, (_, is_warm) in enumerate(rates) if is_warm), len(rates))
    after = [rate for rate, _ in rates[first:]]
    assert all(later <= rate + 1e-12 for rate, later in zip(after, after[1:]))


@given(st.sampled_from(["linear", "cosine"]), st.integers(10, 99), st.integers(100, 1000))
def test_a_decay_of_another_length_goes_on_from_where_it_is_to_its_end(schedule, step, after):
    config = OptimConfig(learning_rate=1.0, warmup_steps=0, schedule=schedule, decay_fraction=0.7)
    before = length_of(config, 100)
    new = change_length(before, config, step=step, steps=after, interval=1)
    assert learning_rate(step, config, new) == pytest.approx(learning_rate(step, config, before))
    assert learning_rate(after, config, new) == pytest.approx(0) and new.steps == after
    assert learning_rate((step + after) // 2, config, new) > 0
    assert change_length(new, config, step=step + 1, steps=after, interval=7) == dataclasses.replace(new, interval=7)


@given(
    st.sampled_from(["linear", "cosine"]), st.floats(0.1, 1.0), st.integers(1, 99), st.integers(1, 1000), st.integers(1, 500)
)
def test_a_decay_that_has_begun_goes_on_falling_in_every_step(schedule, decay_fraction, step, more, later):
    """After one change of the length and after a second one: no step has the rate of the one before."""
    config = OptimConfig(learning_rate=1.0, warmup_steps=0, schedule=schedule, decay_fraction=decay_fraction)
    length = length_of(config, 100)
    assume(is_falling(step, config, length))
    length = change_length(length, config, step=step, steps=step + more, interval=1)
    for _ in range(2):
        rates = [learning_rate(s, config, length) for s in range(step, length.steps + 1)]
        assert all(one > other for one, other in zip(rates, rates[1:]))
        step = step + more // 2
        length = change_length(length, config, step=step, steps=step + later, interval=1)
