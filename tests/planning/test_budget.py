"""The time of a training: what is promised of it holds in every life that a run may have."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import pytest
from helpers import Clock as Machine
from hypothesis import example, given
from hypothesis import strategies as st

from chargpt.planning import budget as time_budget
from chargpt.planning.budget import AFTER_SECONDS, SETTLED_SECONDS, SETTLING_STEPS, Budget, Stopwatch, TimeModel, slowness
from chargpt.runs.stage import Length


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """That of the machine on which the tests run may be disturbed by other programs."""
    clock = Machine()
    monkeypatch.setattr(time_budget, "time", clock)
    return clock


def length_of(steps: int, interval: int = 1000) -> Length:
    return Length(steps=steps, warmup=0, interval=interval)


def test_pauses_are_not_time_in_steps_and_evaluations_alone_are_expected_again(clock):
    watch = Stopwatch()
    for _ in range(SETTLING_STEPS + 5):
        clock.now += 0.0625  # what a step takes before a pause is counted, too
        with watch.paused(evaluates=True):
            clock.now += 0.5
        for pause in (0.3, 8.0):  # a save
            with watch.paused():
                clock.now += pause
        clock.now += 0.1875
        watch.step_done()
    assert (watch.seconds / 5, watch.evaluation, watch.steps_per_second()) == (0.25, 0.5, 4)


def make_budget(seconds: float | None, steps_left: int = 1000) -> Budget:
    """0.1 s a step, 2 s an evaluation."""
    budget = Budget(seconds)
    budget.begin(0, steps_left)
    watch = budget.watch
    watch.steps = watch.evaluated = SETTLING_STEPS + 10
    watch.seconds, watch.evaluation = 1.0, 2.0
    budget.measure()
    return budget


def test_the_steps_that_fit_leave_time_for_evaluations():
    budget = make_budget(100)
    (steps, _), rest = budget.length_that_fits(0, eval_interval=50), 100 - budget.kept
    assert steps * 0.1 + 2.0 * (steps / 50 + 1) <= rest < (steps + 2) * 0.1 + 2.0 * ((steps + 2) / 50 + 1)
    known = TimeModel(0.1, 2.0)
    assert known.steps_in(1, interval=50) == 0 and known.duration(100, interval=50) == 100 * 0.1 + 3 * 2.0


def test_what_comes_before_and_after_the_steps_takes_at_most_a_third_of_a_short_time():
    model = TimeModel(0.1, 1.0, overhead=5.0)
    assert [model.reserve(seconds) for seconds in (0.3, 6.0, 15.0, 600.0)] == pytest.approx([0.1, 2.0, 5.0, 5.0])


@pytest.mark.parametrize("step", [0, 1000])
def test_a_run_with_a_time_limit_is_long_enough_to_measure_its_speed_whatever_its_preset_says(step):
    budget = Budget(1.0)
    steps = budget.least(1, step=step) - step
    budget.begin(step, step + steps)
    due = []
    for done in range(1, steps + 1):
        budget.step_done()
        due += [done] if budget.is_due(step + done) else []
    assert due and SETTLING_STEPS < due[0] <= steps // 2  # the rate falls in the second half
    assert Budget(None).least(1, step=step) == 1


def test_a_measurement_waits_for_a_settled_speed_or_a_quarter_of_a_short_run_and_others_follow_with_a_limit():
    budget = make_budget(None)
    assert not budget.is_due(10)
    budget.watch.seconds = SETTLED_SECONDS
    assert budget.is_due(10)
    assert make_budget(None, steps_left=40).is_due(10) and not make_budget(None, steps_left=400).is_due(10)
    for seconds, again in ((None, False), (100, True)):
        budget = make_budget(seconds)
        budget.set_length(20, length_of(1000))
        assert budget.is_due(510) == again and not budget.is_due(511) and not budget.is_unmeasured
        budget.set_length(990, length_of(1000))
        assert not any(budget.is_due(step) for step in range(991, 1001))


@pytest.mark.parametrize("evaluation", [2.0, 0.2])
def test_a_short_run_is_evaluated_at_least_five_times_and_hardly_more_often(evaluation):
    budget = make_budget(120)
    budget.known = dataclasses.replace(budget.known, evaluation=evaluation)
    length, interval = budget.length_that_fits(10, eval_interval=500)
    assert 5 <= -(-length // interval) <= 7
    assert (length - 10) * 0.1 + evaluation * (length // interval + 1) <= 121
    assert make_budget(10_000).length_that_fits(10, eval_interval=500)[1] == 500


def step(clock: Machine, budget: Budget, milliseconds: float, *, seconds: float = SETTLED_SECONDS) -> None:
    """Steps of this length, for at least so many seconds."""
    for _ in range(int(1000 * seconds / milliseconds) + 1):
        clock.now += milliseconds / 1000
        budget.step_done()


def test_a_speed_that_has_changed_is_measured_soon_with_a_limit_and_a_short_disturbance_is_none(clock):
    for seconds in (None, 60.0):
        budget = Budget(seconds)
        budget.begin(0, 10_000)
        step(clock, budget, 10, seconds=2 * SETTLED_SECONDS)
        budget.measure()
        budget.set_length(budget.watch.steps, length_of(100_000))
        clock.now += 2.0  # one step that another program has stopped
        step(clock, budget, 10, seconds=2 * SETTLED_SECONDS)
        step(clock, budget, 40, seconds=SETTLED_SECONDS)  # and one that lasts some seconds
        step(clock, budget, 10, seconds=2 * SETTLED_SECONDS)
        assert not budget.is_due(budget.watch.steps)
        step(clock, budget, 25, seconds=3 * SETTLED_SECONDS)
        assert budget.is_due(budget.watch.steps) == (seconds is not None)
        if seconds is not None:
            budget.measure()
            assert budget.known.step == pytest.approx(0.025)  # without the faster steps before
            budget.set_length(budget.watch.steps, length_of(100_000))
            assert not budget.is_due(budget.watch.steps)


def test_a_first_measurement_that_was_disturbed_is_made_again_soon(clock):
    """One step of it was stopped for seconds, or all its steps were slow. The run is then as long as on an idle machine."""
    for slow_steps, milliseconds in ((1, 2600), (100, 24)):
        budget = Budget(100.0)
        budget.begin(0, 10_000)
        step(clock, budget, 10, seconds=0.5)
        step(clock, budget, milliseconds, seconds=(slow_steps - 0.5) * milliseconds / 1000)
        step(clock, budget, 10, seconds=max(0.0, SETTLED_SECONDS - budget.watch.seconds))
        done = budget.watch.steps
        assert budget.is_due(done)
        budget.measure()
        budget.set_length(done, length_of(budget.length_that_fits(done, eval_interval=1000)[0]))
        disturbed, waited = budget.known.step, clock.now
        while not budget.is_due(budget.watch.steps):
            step(clock, budget, 10, seconds=0.0)
        assert clock.now - waited < 2.1 * SETTLED_SECONDS
        budget.measure()
        assert budget.known.step == pytest.approx(0.01, rel=0.02) and disturbed > 0.016


def test_one_slow_evaluation_does_not_make_the_others_slow(clock):
    watch, said = Stopwatch(), []
    for seconds in (2.0, 6.0, 2.0, 5.0, 5.0):
        with watch.paused(evaluates=True):
            clock.now += seconds
        said.append(watch.evaluation)
    assert said == pytest.approx([2, 2, 2, 2, 5])


def test_an_evaluation_whose_result_was_kept_is_expected_to_take_what_it_took(clock):
    watch = Stopwatch()
    with watch.paused(evaluates=True):
        clock.now += 0.25
        watch.spared = 1.75
    assert watch.evaluation == 2.0 and watch.seconds == 0
    with watch.paused(evaluates=True):
        clock.now += 1.5
    assert watch.evaluation == 1.5


def test_beside_other_programs_more_time_is_kept_back_for_what_follows_the_last_step(clock):
    idle = make_budget(1000).kept
    assert slowness() == pytest.approx(1, rel=0.05) and idle == pytest.approx(AFTER_SECONDS + 10, rel=0.05)
    clock.slowness = 3.0
    assert slowness() == pytest.approx(3, rel=0.05)
    budget = make_budget(1000)
    assert budget.kept == pytest.approx(3 * AFTER_SECONDS + 10, rel=0.05)
    assert budget.length_that_fits(10, eval_interval=500)[0] < (1000 - budget.kept) / 0.1
    assert make_budget(6).kept <= 2.1, "at most a third of a short time"


@pytest.mark.parametrize("seconds", [6, 60, 1000])
def test_what_is_kept_back_for_the_end_does_not_shrink_while_the_time_passes(seconds, clock):
    budget = make_budget(seconds)
    kept = budget.kept
    for _ in range(8):
        clock.now += 0.1 * seconds
        budget.measure()
        assert budget.kept == pytest.approx(kept, rel=0.1)


def test_each_model_may_take_what_those_after_it_need_not(clock):
    """Of three models in 100 s, with 25 s for the second and 50 s for the last: the first one has 25 s, from its start on."""
    clock.now += 3.0  # imports
    first = Budget(100.0, started=clock.now - 3.0, later=75.0)
    assert first.share == 25.0 and first.left == 22.0
    clock.now += 10.0  # it ends early
    second = first.next(25.0, later=50.0, known=TimeModel(0.1, 0.1))
    assert second.left == second.given == 50.0 - 13.0
    second.later = 0.0  # it was decided that no other follows
    assert second.left == 100.0 - 13.0
    assert Budget(None, later=0.0).share is None


def test_a_model_after_one_without_a_limit_has_the_time_that_is_planned_for_it_alone(clock):
    """Before it, a run was resumed whose length was fitted already; or no time is planned for it, but as many steps."""
    known = TimeModel(0.1, 0.1)
    assert Budget(None).next(25.0, later=50.0, known=known).left == 25.0
    for limit in (None, 100.0):
        assert Budget(limit).next(None, later=0.0, known=known).limit is None


def test_a_model_that_goes_back_to_a_checkpoint_is_measured_anew(clock):
    budget = Budget(100.0, known=TimeModel(0.1, 0.1))
    for seconds in (0.2, 0.1):  # before, and after: the second time, the machine is faster
        budget.begin(0, 1000)
        step(clock, budget, 1000 * seconds)
        assert budget.is_unmeasured
        budget.measure()
        budget.set_length(40, length_of(400))
        assert budget.known.step == pytest.approx(seconds)


def test_the_end_of_a_run_is_told_when_its_length_or_its_speed_changes_by_more_than_a_tenth(clock):
    budget = Budget(100.0, known=TimeModel(0.1, 0.1))
    budget.begin(0, 1000)
    told = []
    for milliseconds, length in ((100, 1000), (100, 960), (100, 700), (100, 720), (150, 720)):
        step(clock, budget, milliseconds)
        budget.measure()
        told.append(bool(budget.set_length(0, length_of(length))))
    assert told == [False, False, True, False, True]


class Life(NamedTuple):
    """What happens to a run on a machine with 10 ms a step: (from this second of the run on, seconds a step) and more."""

    seconds: float
    speeds: tuple[tuple[float, float], ...] = ()
    evaluation: float = 0.2
    stops: tuple[tuple[float, float], ...] = ()  # the machine, or the process, stands still: when, and for how many seconds
    slowness: float = 1.0
    sees: float = 0.01  # seconds of a step, as the plan knows it: from a cache that may be wrong
    used: float = 0.97  # share of the time that is used, at least
    late: float = 3.0  # seconds after the limit, at most


LIVES = {
    "an idle machine": Life(60.0),
    "ten minutes": Life(600.0, used=0.98),
    "18 seconds": Life(18.0, used=0.85),
    "bursts of other work": Life(120.0, tuple((at, (0.01, 0.03)[at // 4 % 2]) for at in range(0, 400, 4)), used=0.6),
    "a machine that gets slow late": Life(60.0, ((45.0, 0.05),), used=0.9),
    "a machine that gets ten times slower": Life(60.0, ((20.0, 0.1),), used=0.9),
    "other work that ends": Life(60.0, ((0.0, 0.04), (20.0, 0.01)), slowness=4.0, used=0.85),
    "a process that is stopped for 15 seconds": Life(60.0, stops=((30.0, 15.0),), used=0.9),
    "a laptop that sleeps at the end": Life(60.0, stops=((50.0, 30.0),), late=33.0),
    "an evaluation that takes ten seconds": Life(300.0, evaluation=10.0, used=0.93),
    "an evaluation that takes a minute": Life(600.0, evaluation=60.0, used=0.85),
    "a cache of a machine that was three times as fast": Life(60.0, sees=0.0033),
    "a cache of a machine that was three times as slow": Life(60.0, sees=0.03),
    "a laptop on its battery": Life(120.0, ((60.0, 0.02),), used=0.95),
}


def trained(
    budget: Budget, clock: Machine, takes: Callable[[int], float], planned: int, *, interval: int = 100, longest: int = 10**12
) -> list[int]:
    """All lengths that are planned of a run whose steps take so many seconds each, and whose evaluations are as expected."""
    length, lengths, evaluation, eval_interval, last = planned, list[int](), budget.known.evaluation, interval, -interval
    budget.begin(step := 0, planned)
    while step < length:
        if step - last >= interval:
            last = step
            with budget.watch.paused(evaluates=True):
                clock.now += evaluation
        clock.now += takes(step)
        budget.step_done()
        step += 1
        if step < length and budget.is_due(step):  # as a session asks
            with budget.watch.paused():
                budget.measure()
                length, interval = budget.length_that_fits(step, eval_interval=eval_interval, longest=longest)
                budget.set_length(step, length_of(length, interval))
                lengths.append(length)
    return lengths


def lived(life: Life, clock: Machine) -> float:
    """The seconds that the run takes, with what precedes and follows its steps."""
    clock.slowness, began, stops = life.slowness, clock.now, list(life.stops)
    budget = Budget(life.seconds, known=TimeModel(life.sees, life.evaluation))

    def takes(step: int) -> float:
        while stops and clock.now - began >= stops[0][0]:
            clock.now += stops.pop(0)[1]
        return ([0.01] + [takes for at, takes in life.speeds if clock.now - began >= at])[-1]

    clock.now += 2.0  # imports
    planned = budget.least(int(life.seconds / life.sees))
    trained(budget, clock, takes, planned, interval=max(1, planned // 10))
    clock.now += life.evaluation + 1.5 * life.slowness  # the last evaluation, and the report
    return clock.now - began


@pytest.mark.parametrize("life", LIVES)
def test_a_run_ends_in_its_time_and_uses_it_whatever_happens(life, clock):
    took = lived(LIVES[life], clock)
    assert LIVES[life].used * LIVES[life].seconds <= took <= LIVES[life].seconds + LIVES[life].late


def run_for(seconds: float, step_times: list[float], planned: int, **longest: int) -> tuple[set[int], float]:
    """The lengths that are planned of a run of so many `seconds`, whose steps take these times in turn, and what it takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time_budget, "time", clock := Machine())
        began, budget = clock.now, Budget(seconds, known=TimeModel(0.05, 0.2))
        lengths = trained(budget, clock, lambda step: step_times[step % len(step_times)], planned, **longest)
        return {*lengths}, clock.now - began


noise = st.lists(st.floats(0.005, 0.05), min_size=1, max_size=40)


@given(step_times=noise, planned=st.integers(20, 2000), longest=st.integers(50, 1000))
def test_epochs_are_the_goal_where_they_limit_a_run_and_the_minutes_only_the_ceiling(step_times, planned, longest):
    """There is time for the slowest steps, so the run reaches its epochs whatever noise the clock measures."""
    seconds = 1.2 * (AFTER_SECONDS + 0.05 * longest + 0.2 * (2 + longest / 100))
    planned = max(4 * (SETTLING_STEPS + 1), min(planned, longest))
    lengths, took = run_for(seconds, step_times, planned, longest=longest)
    assert lengths == {longest} and took <= seconds


@given(step_times=noise, seconds=st.floats(20.0, 60.0))
def test_where_the_time_limits_a_run_it_ends_in_time_and_uses_most_of_it(step_times, seconds):
    _, took = run_for(seconds, step_times, 100)
    assert 0.6 * (seconds - AFTER_SECONDS) <= took <= seconds + 1


phases = st.lists(st.tuples(st.floats(0.02, 0.1), st.floats(5.0, 60.0)), min_size=2, max_size=12)


@given(phases=phases, seconds=st.floats(60.0, 600.0))
@example(phases=[(0.08, 20.5), (0.02, 6.0)], seconds=60.0)  # slow again just before the end
def test_a_machine_whose_speed_changes_all_the_time_does_not_make_a_run_late(phases, seconds):
    """Each phase has seconds of a step, and how many seconds it lasts."""
    step_times = [step for step, lasts in phases for _ in range(round(lasts / step))]
    _, took = run_for(seconds, step_times, 100)
    assert 0.6 * (seconds - AFTER_SECONDS) <= took <= seconds + 0.4  # a step and an evaluation
