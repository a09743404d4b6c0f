"""How a program tells its user: notices, messages and a progress bar, on a terminal or to the process that started it."""

import math
import os
import sys
import textwrap
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TextIO

from chargpt.errors import IN_SHELL, Message, Problem, Words
from chargpt.formatting import clock, one_line
from chargpt.notices import Kind, TrainingProgress

DIM, PLAIN = "\x1b[2m", "\x1b[0m"  # of a terminal
LABEL = 12  # width of the first column of a notice
BAR = "{percentage:3.0f}%|{bar}| {remaining} left{postfix}"  # in tqdm's terms
MIN_WIDTH = 30  # of a terminal in which lines are wrapped
PLAIN_SECONDS = 10.0  # between two lines on a training, if the second one has only a training loss


def terminal_width(stream: TextIO) -> int:
    """The columns of the terminal that `stream` writes to; 0 if it is not a terminal."""
    try:
        return os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0
    except (OSError, ValueError):  # ValueError: it has no file descriptor
        return 0


def wrapped(line: str, stream: TextIO | None = None) -> str:
    """`line`, broken to the width of the terminal if `stream` (default: standard output) is one, below the second column."""
    width = terminal_width(sys.stdout if stream is None else stream)
    if width < MIN_WIDTH:
        return line
    return textwrap.fill(line, width, subsequent_indent=" " * LABEL, break_long_words=False, break_on_hyphens=False)


def label_of(kind: Kind) -> str:
    """What stands before a notice of this kind: at most 11 characters."""
    return kind.name.lower().replace("_", " ")


def labelled(text: Words, kind: Kind | None) -> Words:
    """A message with the label of its kind, if it has one."""
    return text if kind is None else Message(f"{label_of(kind)}: ", text)


def notice_line(kind: Kind, text: str) -> str:
    """A notice in two columns, its label and what it is about, without control characters."""
    return in_columns(label_of(kind), text)


def in_columns(name: str, text: str) -> str:
    """A name of at most 11 characters, and a text on a single line."""
    return f"{name:<{LABEL}}{one_line(text)}"


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


class Screen:
    """How a program tells its user: on a terminal, in the words of the command line."""

    def __init__(self) -> None:
        self._bar: Any = None  # of tqdm, while one is shown
        self._progress, self._sample = ProgressLines(), ""  # of the training that goes on

    @property
    def bar_width(self) -> int:
        """The columns for a progress bar; 0 where there is none."""
        return terminal_width(sys.stderr)

    def spelled(self, words: Words) -> str:
        """`words` as the user of this screen writes them."""
        return IN_SHELL(words)

    def lines(self, text: str) -> None:
        """Print whole lines as they are, above the bar."""
        (print if self._bar is None else self._bar.write)(text)
        sys.stdout.flush()

    def line(self, text: str) -> None:
        """Print one line, broken to the width of a terminal."""
        self.lines(wrapped(text))

    def sample(self, text: str, *, label: str = "") -> None:
        """Show the first two lines of a sample above a progress bar, dim; without a bar nothing, so that logs stay short."""
        if self.bar_width:
            lines = [one_line(line)[: self.bar_width - 5] for line in text.split("\n") if line.strip()][:2]
            shown = zip((label, ""), lines)
            self.lines("\n".join(f"{DIM}{first:>4} {line}{PLAIN}" for first, line in shown))

    def notice(self, kind: Kind, text: Words) -> None:
        """Print a notice, see `notice_line`."""
        self.line(notice_line(kind, self.spelled(text)))

    def log(self, text: Words, kind: Kind | None = None) -> None:
        """Print a message to standard error, on one line without control characters, after the label of its kind."""
        print(wrapped(one_line(labelled(text, kind)), sys.stderr), file=sys.stderr, flush=True)

    def error(self, problem: Problem) -> None:
        """Print the line that says why the program ends."""
        self.log(Message("error: ", problem))

    def progress(self, now: TrainingProgress) -> None:
        """Show how far a training is: a bar, with lines above it; where there is no room for one, lines alone."""
        if line := self._progress.due(now, has_bar=bool(self.bar_width)):
            self.line(line)
        if now.sample != self._sample:
            self._sample = now.sample
            self.sample(now.sample, label="" if line else f"{now.step}")
        if not self.bar_width:
            return
        losses = [f"{name} {loss:.3f}" for name, loss in (("train", now.train_loss), ("val", now.val_loss)) if loss is not None]
        beside = ", ".join([*[now.model] * bool(now.model), *losses])
        if self._bar is None:
            form = {"dynamic_ncols": True, "mininterval": 0.5, "bar_format": BAR, "postfix": beside}
            self._bar = self.new_bar(initial=now.step, total=now.of, **form)
        bar = self._bar
        bar.set_postfix_str(beside, refresh=False)
        if bar.total != now.of:
            bar.total = now.of
            bar.refresh()
        bar.update(now.step - bar.n)

    def new_bar(self, **settings: Any) -> Any:
        """A bar of tqdm."""
        from tqdm import tqdm

        return tqdm(**settings)

    def end_progress(self) -> None:
        """The training, or one of its models, has ended: leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()
        self._bar, self._progress, self._sample = None, ProgressLines(), ""

    def saved(self, run: Path) -> None:
        """A checkpoint is in the folder `run`. Its path is among the notices."""


# The screen of this process, if it is not a terminal: a program sets it before it does anything else, and a library never does.
SCREEN: ContextVar[Screen] = ContextVar("SCREEN")
TERMINAL = Screen()


def screen() -> Screen:
    """How this process tells its user."""
    return SCREEN.get(TERMINAL)


def notice(kind: Kind, text: Words) -> None:
    """Show a notice for the user; see `notice_line`."""
    screen().notice(kind, text)


def log(text: Words, kind: Kind | None = None) -> None:
    """Show a message beside the output of the program."""
    screen().log(text, kind)


def is_coloured(stream: TextIO) -> bool:
    """Whether colours that nobody has asked for may be written to `stream`: it is a terminal, and NO_COLOR is not set."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    if os.name == "nt":  # have an old console obey ANSI codes, as every other terminal does
        import colorama

        colorama.just_fix_windows_console()
    return True
