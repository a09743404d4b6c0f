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

    def show(self, step: int, values: Mapping[str, float]) -> None:
        """Show numbers that were just logged: beside the bar, or as a line for an evaluation or when one is due.

        A line holds a loss only if it is new. Beside the bar, an older validation loss has the step that it belongs to, or is
        left out where that does not fit.
        """
        self._numbers.update(values)
        train = [f"train {self._numbers['train/loss']:.3f}"] if "train/loss" in self._numbers else []
        self._is_new = self._is_new or "train/loss" in values
        words = list(train) if self._is_new else []
        if "val/loss" in values:
            self._evaluated = step
            words += [f"val {values['val/loss']:.3f}", f"{values['val/bits_per_char']:.3f} bits/char"]
        self._beside = ", ".join([*self._name, *train, *self._last_evaluation(step)])
        self._draw()
        now = time.perf_counter()
        is_due = (
            not self._screen.bar_width and now - self._last_line >= PLAIN_SECONDS and step < self._total
        )  # at the end comes a loss
        if "val/loss" not in values and not is_due:
            return
        self._last_line, self._is_new = now, False
        if "chars_per_second" in self._numbers:
            words.append(f"{self._numbers['chars_per_second']:,.0f} chars/s")
        if step > self._first:
            left = (now - self._started) / (step - self._first) * (self._total - step)
            words.append(f"{clock(left)} left")
        self._screen.lines(wrapped(", ".join([*self._name, f"step {step:,}/{self._total:,}: "]) + ", ".join(words)))

    def _last_evaluation(self, step: int) -> list[str]:
        is_wide = self._screen.bar_width >= 60
        if "val/loss" not in self._numbers or not (is_wide or self._evaluated == step):
            return []
        return [f"val {self._numbers['val/loss']:.3f}{f' (step {self._evaluated:,})' if is_wide else ''}"]

    def close(self) -> None:
        """Leave the bar as it is."""
        self._screen.end_progress()
