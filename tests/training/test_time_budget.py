"""The stopwatch counts time in steps alone, and what it promises fits."""

import time

from chargpt.training.time_budget import SETTLING_STEPS, Pace


def test_time_aside_is_not_time_in_steps():
    pace = Pace()
    for step in range(SETTLING_STEPS + 5):
        with pace.aside():
            time.sleep(0.02)
        time.sleep(0.002)
        pace.stepped()
    pace.measure()
    assert 0.002 <= pace.seconds_per_step < 0.015
    assert 0.02 <= pace.aside_seconds < 0.05
    assert pace.lap() > 60


def test_the_pace_is_that_of_the_steps_since_it_was_last_measured():
    pace = Pace()
    for steps, seconds, expected in (
        (SETTLING_STEPS + 10, 1.0, 0.1),
        (SETTLING_STEPS + 20, 3.0, 0.2),
        (SETTLING_STEPS + 20, 3.0, 0.2),
    ):
        pace.steps, pace.seconds = steps, seconds
        pace.measure()
        assert pace.seconds_per_step == expected


def test_the_first_lap_counts_no_step_whose_time_it_leaves_out():
    pace = Pace()
    pace.steps = SETTLING_STEPS - 1
    assert pace.lap() == 0
    pace.steps, pace.seconds = SETTLING_STEPS + 10, 1.0
    assert pace.lap() == 10


def test_steps_within_leaves_room_for_evaluations():
    pace = Pace()
    pace.steps, pace.seconds, pace.aside_seconds = SETTLING_STEPS + 10, 1.0, 2.0  # 0.1 s a step, 2 s an evaluation
    pace.measure()
    steps = pace.steps_within(100, eval_interval=50)
    assert steps * 0.1 + 2.0 * (steps / 50 + 1) <= 100 < (steps + 2) * 0.1 + 2.0 * ((steps + 2) / 50 + 1)
    assert pace.steps_within(1, eval_interval=50) == 0
