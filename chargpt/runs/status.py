"""status.json: what a run is doing, for programs, replaced as a whole; whether it still does it, its lock says."""

import dataclasses
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from chargpt.files import publish_file
from chargpt.project import STATUS

LARGEST = 2**16  # bytes; it may be a stranger's
STATES = ("training", "stopped", "failed", "finished")


@dataclass(frozen=True, kw_only=True)
class Status:
    """A run as its process has described it."""

    state: str  # one of STATES
    reason: str = ""  # why it has failed
    step: int  # of the present model
    steps: int
    model: str = ""  # which of several; empty for the only one
    seconds_left: float | None = None

    def write(self, folder: Path) -> None:
        """Replace that of the run in `folder`, unless it cannot be written: nothing depends on it."""
        with suppress(OSError):
            publish_file(folder / STATUS, json.dumps(dataclasses.asdict(self)).encode())


def read_status(folder: Path) -> Status | None:
    """That of the run in `folder`; None if there is none that can be understood."""
    path = folder / STATUS
    with suppress(OSError, ValueError, TypeError, RecursionError):
        if path.is_file() and path.stat().st_size <= LARGEST:  # reading a pipe would block
            found = Status(**json.loads(path.read_bytes()))
            numbers, texts = (found.step, found.steps, found.seconds_left or 0.0), (found.state, found.reason, found.model)
            if found.state in STATES and {*map(type, numbers)} <= {int, float} and {*map(type, texts)} == {str}:
                return found
    return None
