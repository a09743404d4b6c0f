"""Signals: Ctrl-C, SIGTERM, SIGHUP from a closed terminal (on Windows SIGBREAK), SIGUSR1 and SIGXCPU from a batch system.

The first signal asks the program to stop cleanly; a second one ends it at once. A KeyboardInterrupt raised by a handler can
be lost, because Python ignores exceptions in destructors and callbacks. So the handler sets a flag.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

# Batch systems send SIGUSR1 some time before the limit, if they are asked to, and SIGXCPU at that of the processor time.
NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK", "SIGUSR1", "SIGXCPU")
SIGNALS = tuple(getattr(signal, name) for name in NAMES if hasattr(signal, name))
SAVING = "\nsaving this step, then stopping\nCtrl-C again stops without saving\n"


class Interrupt:
    """While active, remembers the first signal, of this process (`came_here`) or of all (`agreed`), and prints `notice`."""

    def __init__(self, notice: str = SAVING) -> None:
        self.signal: int | None = None
        self._notice = notice

    @property
    def came_here(self) -> bool:
        """Whether a signal came to this process."""
        return self.signal is not None

    @property
    def agreed(self) -> bool:
        """Whether all processes are to stop. Only `Group.read` changes it: in each step, each evaluation and each save."""
        return self.exit_code != 0

    @property
    def exit_code(self) -> int:
        """The exit code of a program that a signal stopped: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP; 0 if none came."""
        return 128 + self.signal if self.signal else 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            os._exit(128 + number)
        self.signal = number
        _write_error(self._notice)

    def __enter__(self) -> "Interrupt":
        self._handled = _handled(self._handle)
        self._handled.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._handled.__exit__(*error)


@contextlib.contextmanager
def ending_at_once(undo: Callable[[], None] = lambda: None, *, notice: str = "stopped\n") -> Iterator[None]:
    """While active, a signal prints `notice`, calls `undo`, at any moment and perhaps within itself, and ends the program."""

    def end(number: int, frame: FrameType | None) -> None:
        _write_error(notice)
        try:
            undo()
        finally:
            os._exit(128 + number)

    with _handled(end):
        yield


@contextlib.contextmanager
def _handled(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """While active, `handler` is called for every signal, except those that are ignored already, as nohup does."""
    is_main = threading.current_thread() is threading.main_thread()  # no other may handle signals
    previous = {number: signal.getsignal(number) for number in SIGNALS if is_main}
    for number, before in previous.items():
        if number == signal.SIGINT or before != signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, signal.SIG_DFL if before is None else before)


def _write_error(text: str) -> None:
    """Write to standard error directly: the signal may have come in the middle of a print."""
    with contextlib.suppress(OSError):
        os.write(2, text.encode())
