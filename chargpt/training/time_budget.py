"""How fast a run steps, and how many steps fit into the time it was given."""

import contextlib
import time
from collections.abc import Iterator

SETTLING_STEPS = 3  # the first steps pay for memory, caches and compilation
SETTLED_SECONDS = 3.0


class Pace:
    """A stopwatch for steps that stands still while something else goes on."""

    def __init__(self) -> None:
        self.steps = 0
        self.seconds = 0.0  # spent in steps, the settling ones left out
        self.aside_seconds = 0.0  # spent in the longest evaluation
        self.seconds_per_step = 0.0  # as last measured
        self._since = self._measured = (SETTLING_STEPS, 0.0)
        self._lap = time.monotonic()

    def stepped(self) -> None:
        """One more step is done."""
        now = time.monotonic()
        self.steps += 1
        if self.steps > SETTLING_STEPS:
            self.seconds += now - self._lap
        self._lap = now

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Time in here, an evaluation and what follows it, is not time in steps."""
        started = time.monotonic()
        self.seconds += max(0.0, started - self._lap) if self.steps > SETTLING_STEPS else 0.0
        yield
        self._lap = time.monotonic()
        self.aside_seconds = max(self.aside_seconds, self._lap - started)

    @property
    def settled(self) -> bool:
        """Enough has been measured to be believed."""
        return self.seconds >= SETTLED_SECONDS

    def measure(self) -> None:
        """Take the steps since the last call as the pace."""
        steps, seconds = self.steps - self._measured[0], self.seconds - self._measured[1]
        if steps > 0:
            self.seconds_per_step, self._measured = seconds / steps, (self.steps, self.seconds)

    def lap(self) -> float:
        """Steps a second since the last call; before anything is measured, 0."""
        steps, seconds = self.steps - self._since[0], self.seconds - self._since[1]
        if steps <= 0 or seconds <= 0:
            return 0.0
        self._since = (self.steps, self.seconds)
        return steps / seconds

    def steps_within(self, seconds: float, *, eval_interval: int) -> int:
        """How many more steps fit into `seconds`, with an evaluation every `eval_interval` of them and one at the end."""
        for_steps = max(0.0, seconds - self.aside_seconds)
        return int(for_steps / (self.seconds_per_step + self.aside_seconds / eval_interval))
