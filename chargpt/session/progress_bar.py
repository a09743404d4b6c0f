"""Shows the progress of a run: a bar with the remaining time in a terminal, plain lines elsewhere."""

import time
from collections.abc import Mapping

from chargpt.terminal import clock, screen, wrapped

PLAIN_SECONDS = 10.0  # between plain lines that show only the training loss


class ProgressBar:
    """The progress of a run that is at `step` of `total`; with a `name` if it is that of one of several models."""

    def __init__(self, *, step: int, total: int, name: str = "") -> None:
        self._screen, self._name = screen(), [name] * bool(name)
        self._step, self._total, self._first = step, total, step
        self._started = self._last_line = time.perf_counter()
        self._numbers: dict[str, float] = {}
        self._evaluated = 0  # the step of the last validation loss
        self._is_new = False  # whether no line has shown the last training loss yet
        self._beside = "".join(self._name)  # what stands beside the bar
        self._draw()

    def _draw(self) -> None:
        if self._screen.bar_width:
            self._screen.progress(self._step, self._total, self._beside)

    def advance(self) -> None:
        """One step is done."""
        self._step += 1
        self._draw()

    def set_total(self, total: int) -> None:
        """The run's length has changed."""
        self._total = total
        self._draw()

    def show(self, step: int, values: Mapping[str, float]) -> bool:
        """Show numbers that were just logged: beside the bar, and as a line for an evaluation or when one is due.

        A line holds a loss only if it is new. Beside the bar, an older validation loss has the step that it belongs to, or is
        left out where that does not fit. Returns whether there is a line.
        """
        self._numbers.update(values)
        numbers, width = self._numbers, self._screen.bar_width
        train = [f"train {numbers['train/loss']:.3f}"] if "train/loss" in numbers else []
        self._is_new = self._is_new or "train/loss" in values
        words = list(train) if self._is_new else []
        if "val/loss" in values:
            self._evaluated = step
            words += [f"val {values['val/loss']:.3f}", f"{values['val/bits_per_char']:.3f} bits/char"]
        beside = [*self._name, *train]
        if "val/loss" in numbers and (width >= 60 or self._evaluated == step):
            beside.append(f"val {numbers['val/loss']:.3f}{f' (step {self._evaluated:,})' if width >= 60 else ''}")
        self._beside = ", ".join(beside)
        self._draw()
        now = time.perf_counter()
        is_due = "train/loss" in values and not width and now - self._last_line >= PLAIN_SECONDS and step < self._total
        if "val/loss" not in values and not is_due:  # at the end comes a loss
            return False
        self._last_line, self._is_new = now, False
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
