"""How long a run is, in steps and in time: the clock of a training measures its speed and fits it to --minutes."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator

from chargpt.planning.time_model import EVALUATION_SHARE, MAX_STEPS, OVERHEAD_SECONDS, SETTLING_STEPS, TimeModel

SETTLED_SECONDS = 3.0  # seconds of steps after which the speed is known
SLOW = 2.0  # steps are slow if they take more than this many times as long as the user was told
CHANGED = 1.5  # the length is fitted again if the speed has changed by this factor or more
# Windows of SETTLED_SECONDS, and share of the time left, for which steps are slower before the run is made shorter, at least.
SLOWER_WINDOWS, SLOWER_SHARE = 2, 0.1
# A run that is fitted to its time has this many evaluations, as long as they take at most EVALUATION_SHARE of it.
MIN_EVALUATIONS = 5
PROBE_SECONDS = 0.03  # seconds of a processor's time that measure how busy the machine is


class Clock:
    """Measures the time of steps, without evaluations, and fits the run's length to the time it was given.

    The first measurement comes after a few seconds of steps, the second halfway from there to the end, and so on. With a
    deadline, another one comes soon after the speed has changed: a machine that becomes slower does not make a run late.
    The speed is looked at in windows of a few seconds. Steps are slower if the faster half of several windows in a row is, so
    that a disturbance does not count at once: in a shorter run, the rate falls too soon, and does not rise again. They are
    faster if all steps of a window are on average, so that a disturbance during the last measurement is found soon.
    """

    def __init__(self, *, steps_left: int, deadline: float | None = None, waits_every: int = 1) -> None:
        """`deadline`, on time.perf_counter, is when the run shall end; None sets no limit.

        The host waits for the device after `waits_every` steps, so only their mean is a time of a step. (time.monotonic would
        do as well, but on Windows, before Python 3.13, it stands still for 16 ms: several small steps.)
        """
        self.deadline = deadline
        self.steps = 0
        self.seconds = 0.0  # in steps, without the first ones
        self.evaluation_seconds = 0.0  # of an evaluation with what follows it: the faster of the last two
        self.seconds_per_step = 0.0  # as last measured
        self.lately = 0.0  # seconds per step in the faster half of the last window
        self.reserve = 0.0  # seconds for what precedes and follows the training, as last measured
        self._steps_left, self._waits_every = steps_left, waits_every
        self._next: int | None = None  # the step of the next measurement; None before the first one, 0 after the last one
        self._measured = self._lap = self._window_start = (SETTLING_STEPS, 0.0)
        self._evaluations: list[float] = []  # seconds of the last two
        self._window: list[float] = []  # seconds of each step in the present window
        self._expected = 0.0  # seconds per step, as last measured for the length; 0 before it
        self._slower_since = 0.0  # `seconds` when steps became slower than expected, by CHANGED or more
        self._has_changed = False  # from what is expected, by CHANGED or more
        self._last = time.perf_counter()
        self._seconds_given = 0.0 if deadline is None else max(0.0, deadline - self._last)  # seconds

    def step_done(self) -> float:
        """One more step is done. Returns the seconds that it took."""
        now = time.perf_counter()
        took, self._last = now - self._last, now
        self.steps += 1
        if self.steps > SETTLING_STEPS:
            self.seconds += took
            self._window.append(took)
        if self.seconds - self._window_start[1] >= SETTLED_SECONDS:
            self._look_at_window()
        return took

    def _look_at_window(self) -> None:
        """Take the speed of the steps in the window, and begin the next window."""
        every = min(self._waits_every, len(self._window))
        means = [sum(self._window[at : at + every]) / every for at in range(0, len(self._window) - every + 1, every)]
        half, mean = sorted(means)[: (len(means) + 1) // 2], sum(self._window) / len(self._window)
        self.lately = sum(half) / len(half)
        if self.lately <= CHANGED * self._expected:
            self._slower_since = self.seconds
        left = 0.0 if self.deadline is None else self.deadline - self._last
        is_slower = self.seconds - self._slower_since >= max(SLOWER_WINDOWS * SETTLED_SECONDS, SLOWER_SHARE * left)
        if self._expected and (is_slower or mean < self._expected / CHANGED):
            self._has_changed = True
            self._measured = self._window_start  # the next measurement is about this speed alone
        self._window_start, self._window = (self.steps, self.seconds), []

    @contextlib.contextmanager
    def paused(self, *, evaluates: bool = False) -> Iterator[None]:
        """Time in this block is not counted as time in steps. A block that `evaluates` is expected again at each evaluation."""
        started = time.perf_counter()
        self.seconds += max(0.0, started - self._last) if self.steps >= SETTLING_STEPS else 0.0
        yield
        self._last = time.perf_counter()
        if evaluates:
            self._evaluations = [*self._evaluations[-1:], self._last - started]
            self.evaluation_seconds = min(self._evaluations)

    @property
    def time_model(self) -> TimeModel:
        """The times of the training, as last measured."""
        return TimeModel(self.seconds_per_step, self.evaluation_seconds, self.reserve)

    @property
    def is_unmeasured(self) -> bool:
        """Whether the speed has not been measured yet."""
        return self._next is None

    def is_due(self, step: int) -> bool:
        """Whether to measure the speed now, after `step` steps of the run."""
        if self._next is not None:
            return self.deadline is not None and (step == self._next or self._has_changed)
        # A short run may end before its speed is known well; then a quarter of its steps must suffice.
        short = self.steps > SETTLING_STEPS and self.steps >= self._steps_left // 4
        return self.seconds >= SETTLED_SECONDS or short

    def measure(self) -> None:
        """Measure the speed since the last call and, with a deadline, the time to reserve for the end of the run."""
        if self.deadline is not None:
            overhead = OVERHEAD_SECONDS * slowness()
            self.reserve = dataclasses.replace(self.time_model, overhead=overhead).reserve(self._seconds_given)
        steps, seconds = self.steps - self._measured[0], self.seconds - self._measured[1]
        if steps > 0:
            self.seconds_per_step, self._measured = seconds / steps, (self.steps, self.seconds)

    def set_length(self, step: int, max_steps: int) -> None:
        """The run is at `step` of `max_steps`: the next measurement is halfway to the end, unless that comes too soon."""
        left = max_steps - step
        self._has_changed = False
        self._expected, self._slower_since = self.seconds_per_step, self.seconds
        self._next = step + left // 2 if left * self.seconds_per_step > SETTLED_SECONDS else 0

    def length_that_fits(self, step: int, *, eval_interval: int, longest: int = MAX_STEPS) -> tuple[int, int]:
        """The steps of a run, `longest` at most, and those between two of its evaluations: `eval_interval` where that is short
        enough for MIN_EVALUATIONS.

        Otherwise the steps of this process get MIN_EVALUATIONS evaluations, or as many as take EVALUATION_SHARE of what is left
        of the time; the earlier steps of a resumed run are counted as if they had been evaluated as often.
        """
        assert self.deadline is not None
        seconds, evaluation = self.deadline - self.reserve - time.perf_counter(), self.evaluation_seconds
        fits = min(self.time_model.steps_in(seconds, interval=eval_interval), longest - step)
        longest = min(longest, MAX_STEPS)
        if self.steps + fits >= MIN_EVALUATIONS * eval_interval:
            return min(step + max(1, fits), longest), eval_interval
        share = fits / max(1, self.steps + fits)  # of this process's steps that are still to come
        wanted = min(MIN_EVALUATIONS * share, EVALUATION_SHARE * seconds / max(evaluation, 1e-9))
        fits = max(1, int(max(0.0, seconds - (1 + wanted) * evaluation) / self.seconds_per_step))
        fits = min(fits, longest - step)
        interval = max(1, fits / wanted) if wanted > 1 else step + fits  # there is time for the last evaluation alone
        steps, evaluations = min(step + fits, longest), round((step + fits) / interval)
        return steps, min(eval_interval, -(-steps // evaluations))

    def steps_per_second(self) -> float:
        """The speed since the last call; 0 before anything is measured."""
        steps, seconds = self.steps - self._lap[0], self.seconds - self._lap[1]
        if steps <= 0 or seconds <= 0:
            return 0.0
        self._lap = (self.steps, self.seconds)
        return steps / seconds

    def seconds_left(self, *, is_undecided: bool = False) -> float | None:
        """What is left of --minutes while the length is not fitted to them, or `is_undecided`; otherwise None."""
        if self.deadline is None or not (self.is_unmeasured or is_undecided):
            return None
        return max(0.0, self.deadline - time.perf_counter())


def slowness() -> float:
    """How many times longer than on an idle machine one thread takes now, by a fraction of a second of its work."""
    started, processor = time.perf_counter(), time.thread_time()
    while (used := time.thread_time() - processor) < PROBE_SECONDS:
        pass
    return max(1.0, (time.perf_counter() - started) / used)
