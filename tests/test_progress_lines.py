"""Progress in a pipe: a line for each evaluation, and few others; in a terminal, a bar."""

import io
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargpt.formatting import clock
from chargpt.notices import TrainingProgress
from chargpt.screen import Screen


def test_an_evaluation_is_a_line_and_training_losses_are_not(capsys):
    screen, known = Screen(), {"train_loss": 2.0, "chars_per_second": 1234.0}
    for step in range(1, 50):
        screen.progress(TrainingProgress(step=step, of=100, **known))
    for step, loss in ((50, 1.5), (55, 1.5), (60, 1.4)):  # at 55 comes nothing new
        measured = {"val_loss": loss, "evaluated": step // 10 * 10, "seconds_left": 9.0}
        screen.progress(TrainingProgress(step=step, of=100, **measured, **known))
    line, later = capsys.readouterr().out.splitlines()
    assert later.startswith("step 60/100: val loss 1.400 (2.020 bits/char)")  # no training loss is new
    assert line == "step 50/100: train loss 2.000, val loss 1.500 (2.164 bits/char), 1,234 chars/s, 0:09 left"


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3661, "1:01:01")])
def test_the_time_is_written_as_a_clock_shows_it(seconds, text):
    assert clock(seconds) == text


def test_the_last_step_is_one_line_although_its_training_loss_is_logged_before(capsys, monkeypatch):
    monkeypatch.setattr("chargpt.screen.PLAIN_SECONDS", 0.0)
    screen = Screen()
    screen.progress(TrainingProgress(step=90, of=100, train_loss=1.5))
    screen.progress(TrainingProgress(step=100, of=100, train_loss=1.4))
    screen.progress(TrainingProgress(step=100, of=100, train_loss=1.4, val_loss=1.6, evaluated=100))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["step 90/100", "step 100/100"]
    assert "train loss 1.400, val loss 1.600" in lines[1]


def shown_in_terminal(width: int, monkeypatch: pytest.MonkeyPatch, use: Callable[[], None]) -> list[str]:
    """The lines that `use` writes to a terminal of that width, without colours."""
    import fcntl
    import struct
    import termios

    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    with open(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr(sys, "stdout", terminal)
        use()
    written = b""
    with suppress(OSError):  # the end, for a terminal that is closed
        while part := os.read(master, 4096):
            written += part
    os.close(master)
    written = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", written.decode())
    return [line.rstrip() for line in re.split(r"[\r\n]+", written)]


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo-terminal")
@pytest.mark.parametrize("width", [50, 120])
def test_in_a_terminal_neither_bar_nor_lines_are_longer_than_it_is_wide(width, monkeypatch):
    def use() -> None:
        screen, speed = Screen(), {"chars_per_second": 1234567.0}
        first = {"val_loss": 4.734, "evaluated": 0}
        screen.progress(TrainingProgress(step=0, of=1_000_000, **first))
        for step in range(1, 4):
            screen.progress(TrainingProgress(step=step, of=1_000_000, train_loss=12.345, **first, **speed))
        last = TrainingProgress(step=3, of=2_000_000, train_loss=12.345, val_loss=4.734, evaluated=3, sample="a\nb\nc", **speed)
        screen.progress(last)
        screen.end_progress()

    lines = shown_in_terminal(width, monkeypatch, use)
    assert max(map(len, lines)) <= width
    assert any("train 12.345, val 4.734" in line and "%" in line for line in lines), lines  # the bar's numbers are not cut off
    assert "1,234,567 chars/s" in " ".join(" ".join(lines).split())


class Tall(Screen):
    """A terminal, in which each bar is kept to be looked at."""

    bar_width = 100

    def new_bar(self, **settings):
        self.made = super().new_bar(**settings, file=io.StringIO())
        return self.made

    def lines(self, text):
        pass


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), st.integers(0, 3))
def test_the_bar_is_where_the_training_is_also_at_its_end(steps, longer):
    screen, at = Tall(), [0, *accumulate(steps)]
    for step in at:
        screen.progress(TrainingProgress(step=step, of=at[-1] + longer * (step < at[-1])))
        assert screen.made.n == step
    screen.end_progress()
    assert (screen.made.n, screen.made.total) == (at[-1], at[-1])
