"""train.py in a process of its own, for `chargpt.train`: a notebook keeps its memory, its threads and its random state.

What it tells its user goes to the parent: each record, a method of `Screen` with what it is given, is a line of JSON after the
control character RS, as in RFC 7464. What else comes, such as the last words of a package in C, has no RS. Standard input is a
pipe to which nothing is written. When it closes, because the user interrupts the parent or because the parent is gone, the
training stops as after Ctrl-C: it saves the run first.
"""

import json
import os
import signal
import threading
import time
from pathlib import Path

from chargpt.errors import IN_PYTHON, NotWritten, UserError, Words
from chargpt.launch import launch
from chargpt.notices import Kind
from chargpt.planning.cli import TrainOptions
from chargpt.screen import SCREEN, Screen

RECORD = "\x1e"  # comes before each record; what is shown to a person never has it
SECONDS = 0.2  # between two records of progress, at least


class ParentScreen(Screen):
    """The screen is that of the parent, who reads the words of the library, and whose bar has `bar_width` columns."""

    bar_width = 0  # an attribute in place of the property of Screen, so that it can be set

    def __init__(self, bar_width: int) -> None:
        super().__init__()
        self.bar_width, self._drawn = bar_width, (0.0, 0, "")  # when, total and numbers

    def spelled(self, words: Words) -> str:
        return IN_PYTHON(words)

    def lines(self, text: str) -> None:
        self._send("lines", text)

    def notice(self, kind: Kind, text: Words) -> None:
        self._send("notice", kind.name, text)

    def log(self, text: Words) -> None:
        self._send("log", text)

    def error(self, text: Words) -> None:
        self._send("mistake" if isinstance(text, UserError) and not isinstance(text, NotWritten) else "error", text)

    def progress(self, step: int, total: int, numbers: str) -> None:
        now, (before, *shown) = time.monotonic(), self._drawn
        if now - before >= SECONDS or shown != [total, numbers] or step == total:
            self._drawn = (now, total, numbers)
            self._send("progress", step, total, numbers)

    def end_progress(self) -> None:
        if self.bar_width:
            self._send("end_progress")

    def saved(self, run: Path) -> None:
        self._send("saved", str(run.absolute()))

    def _send(self, method: str, *given: Words | int) -> None:
        spelled = [value if isinstance(value, int) else self.spelled(value) for value in given]
        print(RECORD + json.dumps([method, *spelled]), flush=True)


def run(bar_width: str, options: str) -> None:
    """The child: train.py with these `options`, a TrainOptions in JSON, until it ends or standard input closes."""
    SCREEN.set(ParentScreen(int(bar_width)))
    threading.Thread(target=_stop_when_closed, daemon=True).start()
    launch("chargpt.commands.train", trains=True, arguments=[TrainOptions(**json.loads(options))])


def _stop_when_closed() -> None:
    while os.read(0, 2**10):  # not by sys.stdin, whose lock would be held when the interpreter ends
        pass
    signal.raise_signal(signal.SIGINT)
