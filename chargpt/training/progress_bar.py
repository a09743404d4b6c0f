"""What a person sees while a run goes on: a bar with the time left in a terminal, plain lines anywhere else."""

import sys
import time

from tqdm import tqdm

PLAIN_SECONDS = 10.0  # between the plain lines that show only training loss


class Screen:
    """Progress of a run that stands at `step` of `total`."""

    def __init__(self, *, step: int, total: int) -> None:
        self.bar = tqdm(
            initial=step, total=total, unit="step", disable=not sys.stderr.isatty(), dynamic_ncols=True, mininterval=0.5
        )
        self.total = total
        self.first = step
        self.started = self.last_line = time.monotonic()
        self.numbers: dict[str, float] = {}

    def say(self, text: str) -> None:
        """A line of its own, above the bar."""
        tqdm.write(text)
        sys.stdout.flush()

    def advance(self) -> None:
        """One step is done."""
        self.bar.update()

    def set_total(self, total: int) -> None:
        """The run's length is known now."""
        self.total = self.bar.total = total
        self.bar.refresh()

    def show(self, step: int, values: dict[str, float | str]) -> None:
        """Numbers just logged: beside the bar, or as a plain line when they hold an evaluation or it is time for one."""
        self.numbers.update((name, value) for name, value in values.items() if isinstance(value, float))
        words = [
            f"{name.split('/')[0]} {self.numbers[name]:.3f}" for name in ("train/loss", "val/loss") if name in self.numbers
        ]
        self.bar.set_postfix_str(", ".join(words), refresh=False)
        now = time.monotonic()
        if "val/loss" in values:
            words.append(f"{values['val/bits_per_char']:.3f} bits/char")
        elif not self.bar.disable or now - self.last_line < PLAIN_SECONDS:
            return
        self.last_line = now
        if "chars_per_second" in self.numbers:
            words.append(f"{self.numbers['chars_per_second']:,.0f} chars/s")
        if step > self.first:
            left = (now - self.started) / (step - self.first) * (self.total - step)
            words.append(f"{clock(left)} left")
        self.say(f"step {step:,}/{self.total:,}: " + ", ".join(words))

    def close(self) -> None:
        self.bar.close()


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss or m:ss."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
