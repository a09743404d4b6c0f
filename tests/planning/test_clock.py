"""The clock counts time in steps alone, and what it plans fits."""

import pytest
from helpers import Clock as Machine
from hypothesis import given
from hypothesis import strategies as st

from chargpt.planning import clock as time_budget
from chargpt.planning.clock import SETTLED_SECONDS, Clock, slowness
from chargpt.planning.time_model import OVERHEAD_SECONDS, SETTLING_STEPS, TimeModel


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """That of the machine on which the tests run may be disturbed by other programs."""
    clock = Machine()
    monkeypatch.setattr(time_budget, "time", clock)
    return clock


def test_pauses_are_not_time_in_steps_and_evaluations_alone_are_expected_again(clock):
    budget = Clock(steps_left=1000)
    for _ in range(SETTLING_STEPS + 5):
        clock.now += 0.0625  # what a step takes before a pause is counted, too
        with budget.paused(evaluates=True):
            clock.now += 0.5
        for pause in (0.3, 8.0):  # a save
            with budget.paused():
                clock.now += pause
        clock.now += 0.1875
        budget.step_done()
    budget.measure()
    assert (budget.seconds_per_step, budget.evaluation_seconds, budget.steps_per_second()) == (0.25, 0.5, 4)


def make_budget(seconds: float | None, steps_left: int = 1000) -> Clock:
    """0.1 s a step, 2 s an evaluation."""
    deadline = seconds and time_budget.time.perf_counter() + seconds
    budget = Clock(steps_left=steps_left, deadline=deadline)
    budget.steps, budget.seconds, budget.evaluation_seconds = SETTLING_STEPS + 10, 1.0, 2.0
    budget.measure()
    return budget


def test_the_steps_that_fit_leave_time_for_evaluations():
    budget = make_budget(100)
    (steps, _), rest = budget.length_that_fits(0, eval_interval=50), 100 - budget.reserve
    assert steps * 0.1 + 2.0 * (steps / 50 + 1) <= rest < (steps + 2) * 0.1 + 2.0 * ((steps + 2) / 50 + 1)
    known = TimeModel(0.1, 2.0)
    assert known.steps_in(1, interval=50) == 0 and known.duration(100, interval=50) == 100 * 0.1 + 3 * 2.0


def test_a_measurement_waits_for_a_settled_speed_or_a_quarter_of_a_short_run_and_others_follow_with_a_deadline():
    budget = make_budget(None)
    assert not budget.is_due(10)
    budget.seconds = SETTLED_SECONDS
    assert budget.is_due(10)
    assert make_budget(None, steps_left=40).is_due(10) and not make_budget(None, steps_left=400).is_due(10)
    for seconds, again in ((None, False), (100, True)):
        budget = make_budget(seconds)
        budget.set_length(20, 1000)
        assert budget.is_due(510) == again and not budget.is_due(511) and not budget.is_unmeasured
        budget.set_length(990, 1000)
        assert not any(budget.is_due(step) for step in range(991, 1001))


@pytest.mark.parametrize("evaluation", [2.0, 0.2])
def test_a_short_run_is_evaluated_at_least_five_times_and_hardly_more_often(evaluation):
    budget = make_budget(120)
    budget.evaluation_seconds = evaluation
    length, interval = budget.length_that_fits(10, eval_interval=500)
    assert 5 <= -(-length // interval) <= 7
    assert (length - 10) * 0.1 + evaluation * (length // interval + 1) <= 121
    assert make_budget(10_000).length_that_fits(10, eval_interval=500)[1] == 500


def step(clock: Machine, budget: Clock, milliseconds: float, *, seconds: float = SETTLED_SECONDS) -> None:
    """Steps of this length, for at least so many seconds."""
    for _ in range(int(1000 * seconds / milliseconds) + 1):
        clock.now += milliseconds / 1000
        budget.step_done()


def test_a_speed_that_has_changed_is_measured_soon_with_a_deadline_and_a_short_disturbance_is_none(clock):
    for seconds in (None, 60.0):
        budget = Clock(steps_left=10_000, deadline=seconds and clock.now + seconds)
        step(clock, budget, 10, seconds=2 * SETTLED_SECONDS)
        budget.measure()
        budget.set_length(budget.steps, 100_000)
        clock.now += 2.0  # one step that another program has stopped
        step(clock, budget, 10, seconds=2 * SETTLED_SECONDS)
        step(clock, budget, 40, seconds=SETTLED_SECONDS)  # and one that lasts some seconds
        step(clock, budget, 10, seconds=2 * SETTLED_SECONDS)
        assert not budget.is_due(budget.steps)
        step(clock, budget, 25, seconds=3 * SETTLED_SECONDS)
        assert budget.is_due(budget.steps) == (seconds is not None)
        if seconds is not None:
            budget.measure()
            assert budget.seconds_per_step == pytest.approx(0.025)  # without the faster steps before
            budget.set_length(budget.steps, 100_000)
            assert not budget.is_due(budget.steps)


def test_a_first_measurement_that_was_disturbed_is_made_again_soon(clock):
    """One step of it was stopped for seconds, or all its steps were slow. The run is then as long as on an idle machine."""
    for slow_steps, milliseconds in ((1, 2600), (100, 24)):
        budget = Clock(steps_left=10_000, deadline=clock.now + 100)
        step(clock, budget, 10, seconds=0.5)
        step(clock, budget, milliseconds, seconds=(slow_steps - 0.5) * milliseconds / 1000)
        step(clock, budget, 10, seconds=max(0.0, SETTLED_SECONDS - budget.seconds))
        assert budget.is_due(budget.steps)
        budget.measure()
        budget.set_length(budget.steps, budget.length_that_fits(budget.steps, eval_interval=1000)[0])
        disturbed, waited = budget.seconds_per_step, clock.now
        while not budget.is_due(budget.steps):
            step(clock, budget, 10, seconds=0.0)
        assert clock.now - waited < 2.1 * SETTLED_SECONDS
        budget.measure()
        assert budget.seconds_per_step == pytest.approx(0.01, rel=0.02) and disturbed > 0.016


def test_one_slow_evaluation_does_not_make_the_others_slow(clock):
    budget, said = Clock(steps_left=1000), []
    for seconds in (2.0, 6.0, 2.0, 5.0, 5.0):
        with budget.paused(evaluates=True):
            clock.now += seconds
        said.append(budget.evaluation_seconds)
    assert said == pytest.approx([2, 2, 2, 2, 5])


def test_beside_other_programs_more_time_is_kept_back_for_what_follows_the_last_step(clock):
    idle = make_budget(1000).reserve
    assert slowness() == pytest.approx(1, rel=0.05) and idle == pytest.approx(OVERHEAD_SECONDS, rel=0.05)
    clock.slowness = 3.0
    assert slowness() == pytest.approx(3, rel=0.05)
    budget = make_budget(1000)
    assert budget.reserve == pytest.approx(3 * OVERHEAD_SECONDS, rel=0.05)
    assert budget.length_that_fits(10, eval_interval=500)[0] < (1000 - budget.reserve) / 0.1
    assert make_budget(6).reserve <= 2, "at most a third of a short time"


def train(seconds: float, *, step_times: list[float], planned: int, longest: int) -> tuple[int, set[int], float]:
    """A run of at most so many `seconds` whose steps take the given times, over and over.

    Returns its steps, all lengths that were planned, and the seconds that it took. An evaluation takes 0.2 s.
    """
    clock, step, length, lengths = Machine(), 0, planned, set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time_budget, "time", clock)
        started = clock.now
        budget = Clock(steps_left=planned, deadline=started + seconds)
        while step < length:
            if step % 100 == 0:
                with budget.paused(evaluates=True):
                    clock.now += 0.2
            clock.now += step_times[step % len(step_times)]
            budget.step_done()
            step += 1
            if budget.is_due(step):
                budget.measure()
                length, _ = budget.length_that_fits(step, eval_interval=100, longest=longest)
                budget.set_length(step, length)
                lengths.add(length)
    return step, lengths, clock.now - started


noise = st.lists(st.floats(0.005, 0.05), min_size=1, max_size=40)


@given(step_times=noise, planned=st.integers(20, 2000), longest=st.integers(50, 1000))
def test_epochs_are_the_goal_where_they_limit_a_run_and_the_minutes_only_the_ceiling(step_times, planned, longest):
    """There is time for the slowest steps, so the run reaches its epochs whatever noise the clock measures."""
    seconds = 1.2 * (OVERHEAD_SECONDS + 0.05 * longest + 0.2 * (2 + longest / 100))
    planned = max(4 * (SETTLING_STEPS + 1), min(planned, longest))
    steps, lengths, took = train(seconds, step_times=step_times, planned=planned, longest=longest)
    assert lengths == {longest} and steps == longest and took <= seconds


@given(step_times=noise, seconds=st.floats(20.0, 60.0))
def test_where_the_time_limits_a_run_it_ends_in_time_and_uses_most_of_it(step_times, seconds):
    _, _, took = train(seconds, step_times=step_times, planned=100, longest=10**12)
    assert 0.6 * (seconds - OVERHEAD_SECONDS) <= took <= seconds + 1


phases = st.lists(st.tuples(st.floats(0.02, 0.1), st.floats(5.0, 60.0)), min_size=2, max_size=12)


@given(phases=phases, seconds=st.floats(60.0, 600.0))
def test_a_machine_whose_speed_changes_all_the_time_does_not_make_a_run_late(phases, seconds):
    """Each phase has seconds of a step, and how many seconds it lasts."""
    step_times = [step for step, lasts in phases for _ in range(round(lasts / step))]
    _, _, took = train(seconds, step_times=step_times, planned=100, longest=10**12)
    assert 0.6 * (seconds - OVERHEAD_SECONDS) <= took <= seconds + SETTLED_SECONDS
