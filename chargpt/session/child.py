"""train.py in a process of its own, for `chargpt.start`: a notebook keeps its memory, its threads and its random state.

What it tells its user goes to the parent: each record, a method of `Screen` with what it is given, is a line of JSON after the
control character RS, as in RFC 7464. What else comes, such as the last words of a package in C, has no RS. When a byte comes on
standard input, because the user stops the training, or its end, because the parent is gone, the training stops as after Ctrl-C:
it saves the run first.
"""

import dataclasses
import json
import os
import signal
import threading
from pathlib import Path

from chargpt.errors import IN_PYTHON, Problem, Words, kind_of
from chargpt.launch import launch
from chargpt.notices import Kind, TrainingProgress
from chargpt.planning.cli import TrainOptions
from chargpt.screen import SCREEN, Screen, labelled

RECORD = "\x1e"  # comes before each record; what is shown to a person never has it


class ParentScreen(Screen):
    """The screen is that of the parent, who reads the words of the library."""

    def spelled(self, words: Words) -> str:
        return IN_PYTHON(words)

    def lines(self, text: str) -> None:
        self._send("lines", text)

    def notice(self, kind: Kind, text: Words) -> None:
        self._send("notice", kind.name, self.spelled(text))

    def log(self, text: Words, kind: Kind | None = None) -> None:
        self._send("log", self.spelled(labelled(text, kind)))

    def error(self, problem: Problem) -> None:
        self._send("error", kind_of(problem), self.spelled(problem))

    def progress(self, now: TrainingProgress) -> None:
        self._send("progress", dataclasses.asdict(now))

    def end_progress(self) -> None:
        self._send("end_progress")

    def saved(self, run: Path) -> None:
        self._send("saved", str(run.absolute()))

    def _send(self, method: str, *given: object) -> None:
        print(RECORD + json.dumps([method, *given]), flush=True)


def run(options: str) -> None:
    """The child: train.py with these `options`, a TrainOptions in JSON, until it ends or is asked to stop."""
    SCREEN.set(ParentScreen())
    threading.Thread(target=_stop_when_asked, daemon=True).start()
    launch("chargpt.commands.train", trains=True, arguments=[TrainOptions(**json.loads(options))])


def _stop_when_asked() -> None:
    os.read(0, 1)  # not by sys.stdin, whose lock would be held when the interpreter ends
    signal.raise_signal(signal.SIGINT)
