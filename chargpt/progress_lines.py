"""The progress of a training in words: the lines that are due, and what stands beside a bar."""

import math
import time

from chargpt.formatting import clock
from chargpt.notices import TrainingProgress

PLAIN_SECONDS = 10.0  # between two lines, if the second one has only a training loss


class ProgressLines:
    """Which lines are due while a training goes on: evaluations, and without a bar now and then the training loss."""

    def __init__(self) -> None:
        self._when = time.perf_counter()  # of the last line
        self._told: tuple[int | None, float | None] = (None, None)  # which evaluation and training loss it had

    def due(self, now: TrainingProgress, *, has_bar: bool) -> str:
        """The line that is due; empty if none is. A training loss is in one line alone."""
        seconds, is_new = time.perf_counter(), now.train_loss not in (None, self._told[1])
        is_evaluated = now.evaluated not in (None, self._told[0])
        is_late = seconds - self._when >= PLAIN_SECONDS and now.step < now.of  # at the end comes an evaluation
        if not is_evaluated and (has_bar or not is_new or not is_late):
            return ""
        words = [f"train loss {now.train_loss:.3f}"] if is_new else []
        if is_evaluated and now.val_loss is not None:
            words.append(f"val loss {now.val_loss:.3f} ({now.val_loss / math.log(2):.3f} bits/char)")
        if now.chars_per_second is not None:
            words.append(f"{now.chars_per_second:,.0f} chars/s")
        if now.seconds_left is not None:
            words.append(f"{clock(now.seconds_left)} left")
        self._when, self._told = seconds, (now.evaluated, now.train_loss)
        return ", ".join([*[now.model] * bool(now.model), f"step {now.step:,}/{now.of:,}: "]) + ", ".join(words)


def beside_bar(now: TrainingProgress) -> str:
    """Which of several models it is, and the losses."""
    losses = {"train": now.train_loss, "val": now.val_loss}
    shown = [f"{name} {loss:.3f}" for name, loss in losses.items() if loss is not None]
    return ", ".join([*[now.model] * bool(now.model), *shown])
