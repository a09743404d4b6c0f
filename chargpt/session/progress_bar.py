"""Shows the progress of a run: a bar with the remaining time in a terminal, plain lines elsewhere."""

import time
from collections.abc import Mapping

from chargpt.formatting import clock
from chargpt.screen import screen, wrapped

PLAIN_SECONDS = 10.0  # between plain lines that show only the training loss


class ProgressBar:
    """The progress of a run that is at `step` of `total`; with a `name` if it is that of one of several models."""

    def __init__(self, *, step: int, total: int, name: str = "") -> None:
        self._screen, self._name = screen(), [name] * bool(name)
        self._step, self._total, self._first = step, total, step
        self._started = self._last_line = time.perf_counter()
        self._numbers: dict[str, float] = {}
        self._beside = "".join(self._name)  # what stands beside the bar
        self._draw()

    def _draw(self) -> None:
        if self._screen.bar_width:
            self._screen.progress(self._step, self._total, self._beside)

    def move(self, step: int, total: int) -> None:
        """The run is at `step` of `total` now."""
        self._step, self._total = step, total
        self._draw()

    def show(self, step: int, values: Mapping[str, float]) -> bool:
        """Show what was just logged: beside the bar, and as a line for an evaluation or when one is due. Returns whether it
        printed a line."""
        self._numbers.update(values)
        numbers, now = self._numbers, time.perf_counter()
        losses = {name: numbers[f"{name}/loss"] for name in ("train", "val") if f"{name}/loss" in numbers}
        self._beside = ", ".join([*self._name, *(f"{name} {loss:.3f}" for name, loss in losses.items())])
        words = [f"{name} loss {loss:.3f}" for name, loss in losses.items()]
        self._draw()
        is_late = now - self._last_line >= PLAIN_SECONDS and step < self._total  # at the end comes an evaluation
        if "val/loss" in values:
            words[-1] += f" ({values['val/bits_per_char']:.3f} bits/char)"
        elif "train/loss" in values and is_late and not self._screen.bar_width:
            words = words[:1]
        else:
            return False
        self._last_line = now
        self._numbers = {name: value for name, value in numbers.items() if name != "train/loss"}  # shown once in lines
        if "chars_per_second" in numbers:
            words.append(f"{numbers['chars_per_second']:,.0f} chars/s")
        if step > self._first:
            left = (now - self._started) / (step - self._first) * (self._total - step)
            words.append(f"{clock(left)} left")
        self._screen.lines(wrapped(", ".join([*self._name, f"step {step:,}/{self._total:,}: "]) + ", ".join(words)))
        return True

    def close(self) -> None:
        """Leave the bar as it is."""
        self._screen.end_progress()
