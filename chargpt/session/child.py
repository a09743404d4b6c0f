"""train.py in a process of its own, for `chargpt.train`: a notebook keeps its memory, its threads and its random state.

The parent prints what the child prints. The child's standard input is a pipe to which nothing is written. When it closes,
because the user interrupts the parent or because the parent is gone, the child stops as after Ctrl-C: it saves the run first.
"""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

from chargpt.arguments import notice_in_python
from chargpt.launch import launch
from chargpt.project import SOURCE
from chargpt.terminal import LABEL

# The child's own sys.path begins with the folder of the package, whatever is in the current folder.
CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from chargpt.session.child import run; run(sys.argv[2:])"
ERROR = "error: "
# A notice: a label that fills the first column, and something after it.
NOTICE = re.compile(rf"[a-z][a-z ]{{{LABEL - 2}}} \S")


class Ended(NamedTuple):
    """How a training ended."""

    code: int
    error: str  # the line that explains an exit code other than 0; empty if there is none
    interrupted: bool


def train_in_child(arguments: Sequence[str]) -> Ended:
    """Run train.py with these `arguments`, and print what it prints.

    A KeyboardInterrupt stops it after saving. A second one kills it and is raised.
    """
    # In a group of its own, a Ctrl-C of the terminal does not reach it twice.
    group: dict[str, Any] = {"process_group": 0}
    if sys.platform == "win32":
        group = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(SOURCE), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        **group,
    )
    assert child.stdin is not None and child.stdout is not None
    interrupted, printing = False, _Printing()
    try:
        while True:
            try:
                for line in child.stdout:
                    printing.add(line)
                break
            except KeyboardInterrupt:
                if interrupted:
                    child.kill()
                    raise
                interrupted = True
                child.stdin.close()
        code = child.wait()
    finally:
        child.stdin.close()
        child.stdout.close()
    return Ended(code, printing.end(code), interrupted)


class _Printing:
    """Prints lines, but keeps the last one back if it may be the error that ends the program.

    Notices speak of calls and arguments of Python; the lines of a sample stay as they are.
    """

    def __init__(self) -> None:
        self._kept = ""

    def add(self, line: str) -> None:
        print(self._kept, end="", flush=True)
        self._kept = ""
        if NOTICE.match(line):
            line = notice_in_python(line)
        if line.startswith(ERROR):
            self._kept = line
        else:
            print(line, end="", flush=True)

    def end(self, code: int) -> str:
        """The error, without its first word; empty if there is none."""
        if code == 0:
            print(self._kept, end="", flush=True)
            return ""
        return self._kept.removeprefix(ERROR).strip()


def run(arguments: list[str]) -> None:
    """The child: train.py, until it has ended or standard input is closed."""
    sys.argv = ["train.py", *arguments]
    threading.Thread(target=_stop_when_closed, daemon=True).start()
    launch("chargpt.commands.train", options="chargpt.planning.cli", trains=True)


def _stop_when_closed() -> None:
    while os.read(0, 2**10):  # not by sys.stdin, whose lock would be held when the interpreter ends
        pass
    signal.raise_signal(signal.SIGINT)
