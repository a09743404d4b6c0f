"""The time of a training: what it may take, what is left of it, how fast its steps are, and how many of them fit."""

import contextlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

from chargpt.config import Config
from chargpt.formatting import clock
from chargpt.notices import Kind, Notice
from chargpt.runs.stage import Length

# Seconds that an idle machine needs before the first step (imports, the choice of settings), and after the last one (a save and
# the report).
BEFORE_SECONDS, AFTER_SECONDS = 3.0, 1.2
OVERHEAD_SHARE = 1 / 3  # share of a run's time for them, at most
RESERVE = 0.08  # share of the time that is for saves, and for steps that take longer than is known
MAX_EVALUATIONS = 10  # evaluations of a run, at most, after the one before the first step
# A run that is fitted to its time has this many evaluations, as long as they take at most EVALUATION_SHARE of it.
MIN_EVALUATIONS, EVALUATION_SHARE = 5, 0.1
MAX_STEPS = 10**12  # steps, as train.max_steps allows
SETTLING_STEPS = 3  # the first steps are slower: they allocate memory, fill caches and compile
SETTLED_SECONDS = 3.0  # seconds of steps after which the speed is known
CHANGED = 1.5  # the length is fitted again if the speed has changed by this factor or more
# Windows of SETTLED_SECONDS, and share of the time left, for which steps are slower before the run is made shorter, at least.
SLOWER_WINDOWS, SLOWER_SHARE = 2, 0.1
SPARE = 0.01  # share of a time limit that is kept for what no measurement tells before it happens
SLOW, NEWS = 2.0, 1.1  # times as long a step as was told, from which it is slow, and from which it is told again
PROBE_SECONDS = 0.03  # seconds of a processor's time that measure how busy the machine is


@dataclass(frozen=True)
class TimeModel:
    """How long the parts of a training take, in seconds."""

    step: float
    evaluation: float  # with what follows it
    overhead: float = BEFORE_SECONDS + AFTER_SECONDS  # before the first step and after the last one

    def duration(self, steps: int, *, interval: int) -> float:
        """The seconds of this many steps with an evaluation after every `interval` of them and one at the end."""
        return steps * self.step + (1 + steps // interval) * self.evaluation

    def steps_in(self, seconds: float, *, interval: int) -> int:
        """The steps that fit into `seconds`, with evaluations as in `duration`; 0 or more."""
        return int(max(0.0, seconds - self.evaluation) / (self.step + self.evaluation / interval))

    def evaluations_in(self, seconds: float) -> int:
        """How many evaluations a run of so many seconds has, besides the one before the first step."""
        return max(1, min(MAX_EVALUATIONS, int(EVALUATION_SHARE * seconds / max(self.evaluation, 1e-9))))

    def in_steps(self, seconds: float) -> float:
        """How much of the `seconds` of a run is for steps."""
        evaluating = (1 + self.evaluations_in(seconds)) * self.evaluation  # the first one comes before the first step
        return max(0.3 * seconds, (1 - RESERVE) * (seconds - self.overhead) - evaluating)

    def at_most(self, steps: float) -> float:
        """The seconds of a run of so many steps, also on a machine that becomes slower; an overestimate is harmless."""
        busy = steps * self.step + (1 + MAX_EVALUATIONS) * self.evaluation
        return 1.5 * self.overhead + 1.25 * busy / (1 - RESERVE)

    def reserve(self, seconds: float) -> float:
        """The part of a time limit of so many seconds that is for `overhead`."""
        return min(self.overhead, OVERHEAD_SHARE * seconds)


class Stopwatch:
    """The time of steps alone, and of evaluations. The speed is looked at in windows of SETTLED_SECONDS. (On Windows, before
    Python 3.13, time.monotonic stands still for 16 ms: several small steps. So times are those of time.perf_counter.)"""

    def __init__(self, *, waits_every: int = 1) -> None:
        """The host waits for the device after `waits_every` steps, so only their mean is a time of a step."""
        self.steps = 0
        self.seconds = 0.0  # in steps, without the first ones
        self.evaluation = 0.0  # seconds of an evaluation with what follows it: the faster of the last two
        self.evaluated = 0  # `steps` at the last one
        self.spared = 0.0  # seconds that the present one would have taken longer, had its result not been kept
        self.recent = 0.0  # seconds per step in the faster half of the last window
        self.mean = 0.0  # seconds per step in the last window
        self.window_start = (SETTLING_STEPS, 0.0)  # `steps` and `seconds` where the last window began
        self._waits_every, self._last = waits_every, time.perf_counter()
        self._lap = self._window_end = self.window_start
        self._evaluations: list[float] = []  # seconds of the last two
        self._window: list[float] = []  # seconds of each step in the present window

    def step_done(self) -> tuple[float, bool]:
        """One more step is done. Returns the seconds that it took, and whether a window ends with it."""
        now = time.perf_counter()
        took, self._last = now - self._last, now
        self.steps += 1
        if self.steps > SETTLING_STEPS:
            self.seconds += took
            self._window.append(took)
        ends = self.seconds - self._window_end[1] >= SETTLED_SECONDS
        if ends:
            every = min(self._waits_every, len(self._window))
            means = [sum(self._window[at : at + every]) / every for at in range(0, len(self._window) - every + 1, every)]
            half = sorted(means)[: (len(means) + 1) // 2]
            self.recent, self.mean = sum(half) / len(half), sum(self._window) / len(self._window)
            self.window_start, self._window_end, self._window = self._window_end, (self.steps, self.seconds), []
        return took, ends

    @contextlib.contextmanager
    def paused(self, *, evaluates: bool = False) -> Iterator[None]:
        """Time in this block is not counted as time in steps. A block that `evaluates` is expected again at each evaluation."""
        started = time.perf_counter()
        self.seconds += max(0.0, started - self._last) if self.steps >= SETTLING_STEPS else 0.0
        yield
        self._last = time.perf_counter()
        if evaluates:
            self.evaluated, self._evaluations = self.steps, [*self._evaluations[-1:], self._last - started + self.spared]
            self.evaluation, self.spared = min(self._evaluations), 0.0

    def steps_per_second(self) -> float:
        """The speed since the last call; 0 before anything is measured."""
        steps, seconds = self.steps - self._lap[0], self.seconds - self._lap[1]
        if steps <= 0 or seconds <= 0:
            return 0.0
        self._lap = (self.steps, self.seconds)
        return steps / seconds


class Budget:
    """The time of a run, from the point of view of the model that it trains now. Plan and session ask it.

    | what it promises | how |
    |---|---|
    | The run ends in its limit, or 3 s later, whatever the machine does. | The steps are fitted again halfway through what is
      left, soon after the speed has changed, and when the time is over, which ends them; time is kept for what follows them,
      more of it beside other programs. |
    | On an idle machine, it uses 97 % of a limit of some minutes. | The steps that fit take all that is not kept. |
    | The rate falls to its end where the steps end. | The length that is fitted is that of the schedule. |
    | A disturbance makes no run shorter: the rate would not rise again. | Steps are slower only if the faster half of several
      windows in a row is. They are faster as soon as all steps of a window are, on average. |

    The first measurement comes after a few seconds of steps; without a limit, it is the only one.
    """

    def __init__(
        self,
        limit: float | None,
        *,
        started: float | None = None,
        later: float = 0.0,
        known: TimeModel | None = None,
        extends: bool = False,
    ) -> None:
        """The run may take `limit` seconds from `started` on (time.perf_counter; None: now), `later` of them for models that
        follow; None: no limit. It `extends` a run that has begun if that gets more time: then its rate may rise again."""
        self.limit, self.later, self.known, self.extends = limit, later, known, extends
        self.started = time.perf_counter() if started is None else started
        self.announced = 0.0 if known is None else known.step  # seconds of a step, as the user was last told; 0: not yet
        self.kept = 0.0  # seconds for what follows the last step, as last measured
        self.given = self.share  # seconds of this model alone, from its own start on; None: no limit
        self.begin(0, 0)

    @property
    def share(self) -> float | None:
        """The seconds of this model from `started` on, with those of the models before it; None: no limit."""
        return None if self.limit is None else self.limit - self.later

    @property
    def left(self) -> float:
        """The seconds that this model may still take; less than 0 if it is late, infinite without a limit."""
        return math.inf if self.share is None else self.started + self.share - time.perf_counter()

    def next(self, seconds: float | None, *, later: float, known: TimeModel) -> "Budget":
        """That of the model which follows, for which so many seconds are planned; None: as many as its steps take. It gets what
        this one has not used, too. One without a limit, since its length was fitted, leaves the next one its own."""
        if seconds is None or self.limit is None:
            return Budget(None if seconds is None else seconds + later, later=later, known=known)
        following = Budget(self.limit, started=self.started, later=later, known=known)
        following.given = max(0.0, following.left)
        return following

    def begin(self, step: int, length: int, *, waits_every: int = 1) -> None:
        """The model is at `step` of so many, and begins its training, or goes on. See `Stopwatch`."""
        self.watch, self._steps_left = Stopwatch(waits_every=waits_every), length - step
        self._announced_length = length
        self._next: int | None = None  # the step of the next measurement; None before the first one, 0 after the last one
        self._measured = self.watch.window_start
        self._expected = 0.0  # seconds per step, as last measured for the length; 0 before it
        self._slower_since = 0.0  # `watch.seconds` when steps became slower than expected, by CHANGED or more
        self._has_changed = False  # from what is expected, by CHANGED or more

    def step_done(self) -> float:
        """One more step is done. Returns the seconds that it took."""
        took, ends = self.watch.step_done()
        if ends:
            watch = self.watch
            if watch.recent <= CHANGED * self._expected:
                self._slower_since = watch.seconds
            left = 0.0 if self.limit is None else self.left
            is_slower = watch.seconds - self._slower_since >= max(SLOWER_WINDOWS * SETTLED_SECONDS, SLOWER_SHARE * left)
            if self._expected and (is_slower or watch.mean < self._expected / CHANGED):
                self._has_changed = True
                self._measured = watch.window_start  # the next measurement is about this speed alone
        return took

    @property
    def is_unmeasured(self) -> bool:
        """Whether the speed has not been measured in this training yet."""
        return self._next is None

    def is_due(self, step: int) -> bool:
        """Whether to measure the speed now, after `step` steps of the model."""
        if self._next is not None:
            return self.limit is not None and (step == self._next or self._has_changed or self.left < 0)
        # A short run may end before its speed is known well; then a quarter of its steps must suffice.
        short = self.watch.steps > SETTLING_STEPS and self.watch.steps >= self._steps_left // 4
        return self.watch.seconds >= SETTLED_SECONDS or short

    def measure(self) -> None:
        """Measure the speed since the last call and, with a limit, the time to keep for the end of the run."""
        watch, step = self.watch, 0.0 if self.known is None else self.known.step
        steps, seconds = watch.steps - self._measured[0], watch.seconds - self._measured[1]
        if steps > 0:
            step, self._measured = seconds / steps, (watch.steps, watch.seconds)
        self.known = TimeModel(step, watch.evaluation, AFTER_SECONDS * (slowness() if self.limit else 1.0))
        given = self.given or 0.0
        self.kept = self.known.reserve(given) + SPARE * given

    def length_that_fits(self, step: int, *, eval_interval: int, longest: int = MAX_STEPS) -> tuple[int, int]:
        """The steps of the model, `longest` at most, and those between two of its evaluations: `eval_interval` where that is
        short enough for MIN_EVALUATIONS.

        Otherwise the steps of this process get MIN_EVALUATIONS evaluations, or as many as take EVALUATION_SHARE of what is left
        of the time; the earlier steps of a resumed run are counted as if they had been evaluated as often.
        """
        assert self.known is not None
        done, evaluation, longest = self.watch.steps, self.known.evaluation, min(longest, MAX_STEPS)
        soon = min(1.0, (done - self.watch.evaluated) / eval_interval)  # how near the next evaluation is
        seconds = self.left - self.kept - soon * evaluation
        fits = min(self.known.steps_in(seconds, interval=eval_interval), longest - step)
        if done + fits >= MIN_EVALUATIONS * eval_interval:
            return min(step + max(1, fits), longest), eval_interval
        wanted = min(
            MIN_EVALUATIONS * fits / max(1, done + fits),  # the share of this process's steps that is still to come
            EVALUATION_SHARE * seconds / max(evaluation, 1e-9),
        )
        fits = max(1, int(max(0.0, seconds - (1 + wanted) * evaluation) / self.known.step))
        steps = step + min(fits, longest - step)
        interval = max(1, (steps - step) / wanted) if wanted > 1 else steps  # there is time for the last evaluation alone
        return steps, min(eval_interval, -(-steps // round(steps / interval)))

    def set_length(self, step: int, length: Length) -> list[Notice]:
        """The model is at `step` of this `length`: the next measurement is halfway to its end, unless that comes too soon.
        Returns what to tell: when the training ends, if that was not told so before."""
        assert self.known is not None
        left, self._has_changed = length.steps - step, False
        self._expected, self._slower_since = self.known.step, self.watch.seconds
        self._next = step + left // 2 if left * self._expected > SETTLED_SECONDS else 0
        changes = (self._expected / (self.announced or math.inf), length.steps / self._announced_length)
        if all(1 / NEWS < change < NEWS for change in changes):
            return []
        self.announced, self._announced_length = self._expected, length.steps
        ends = f"training ends at step {length.steps:,}, in {clock(self.known.duration(left, interval=length.interval))}"
        return [Notice(Kind.SPEED, f"{1000 * self.announced:.1f} ms a step; {ends}")]

    def slower(self) -> list[Notice]:
        """What to tell if steps have lately become much slower than was told."""
        before, recent = self.announced, self.watch.recent
        if self.is_unmeasured or not 0 < SLOW * before < recent:
            return []
        self.announced = recent
        why = "the machine is busy with other work, or too hot"
        return [Notice(Kind.SLOW, f"{1000 * recent:.1f} ms a step instead of {1000 * before:.1f}, since {why}")]

    def unused(self, *, is_undecided: bool) -> float | None:
        """For a checkpoint: what is left while the length is not fitted to the time, or `is_undecided`; otherwise None."""
        return max(0.0, self.left) if self.limit is not None and (self.is_unmeasured or is_undecided) else None

    def least(self, steps: int, *, step: int = 0) -> int:
        """The `steps` of a model at `step`; with a limit, enough to measure the speed before the rate falls."""
        return steps if self.limit is None else max(step + 4 * (SETTLING_STEPS + 1), steps)


def slowness() -> float:
    """How many times longer than on an idle machine one thread takes now, by a fraction of a second of its work."""
    started, processor = time.perf_counter(), time.thread_time()
    while (used := time.thread_time() - processor) < PROBE_SECONDS:
        pass
    return max(1.0, (time.perf_counter() - started) / used)


def steps_in(epochs: float, config: Config, *, characters: int) -> int:
    """The steps in which a run reads a training text of this many characters this number of times; rounded up."""
    return max(1, math.ceil(epochs * characters / config.chars_per_step))


def longest_run(config: Config, *, characters: int, epochs: float | None = None) -> int:
    """The highest number of steps of a run on so many characters, from its `epochs` or `train.max_epochs`; rounded up."""
    epochs = config.train.max_epochs if epochs is None else epochs
    return steps_in(epochs, config, characters=characters) if epochs else MAX_STEPS
