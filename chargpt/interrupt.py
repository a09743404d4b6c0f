"""Ctrl-C, SIGTERM and a lost terminal: the first asks a run to save and stop, the second ends it at once."""

import contextlib
import os
import signal
from types import FrameType, TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupt:
    """While active, remembers the first signal; call it to ask whether one came."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """What a shell expects of a program that a signal stopped: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP; 0 if none came."""
        return 128 + self.signal if self.signal else 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            os._exit(128 + number)
        self.signal = number
        with contextlib.suppress(OSError):  # not print: the signal may have come in the middle of one
            os.write(2, b"\nstopping: saving this step first (once more to stop at once)\n")

    def __enter__(self) -> "Interrupt":
        self._previous = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
