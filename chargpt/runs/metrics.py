"""What a run tells on disk: metrics.jsonl, its log, and status.json, what it is doing, which is replaced as a whole.

The log is written line by line, cut where a resumed run goes on, and read back as curves and samples. Each line is an object:
`stage`, which of the models of the run it is about, `step`, counted from the first step of the first model, and numbers or
texts by their names, such as val/loss and sample.
"""

import dataclasses
import errno
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chargpt.files import publish_file
from chargpt.project import METRICS, STATUS

# The loss of the best checkpoint so far. HParams shows five metrics in the order of their names: this one comes first.
BEST = "best/val_loss"
# Of a text that has grown: the losses on what an earlier run holds out too, and on what is new.
KNOWN, NEW = "val/known", "val/new"
EVENT = "state"  # of a line that says that the training stopped, failed or was finished; no later one takes it back
# A larger number is not a measurement, and would overflow in a chart.
LARGEST = 1e30
MAX_LINE = 2**20  # characters; samples are shorter
MAX_READ = 2**28  # characters; a run of weeks writes less
MAX_STATUS = 2**16  # bytes; it may be a stranger's
STATES = ("training", "stopped", "failed", "finished")


class MetricsFile:
    """The metrics.jsonl of the run in `folder`, to which lines are added. Its methods raise OSError."""

    def __init__(self, folder: Path, *, stage: int, step: int) -> None:
        """The model `stage` is at `step`: drop the lines after it, and a last line that a crash cut short."""
        path, self._stage = folder / METRICS, stage
        if os.path.lexists(path):
            if not _is_own_file(path):
                raise OSError(f"{path.name} is not a regular file")
            found = [(line, EVENT in values or (one, at) <= (stage, step)) for line, one, at, values in _entries(path)]
            publish_file(path, "".join(line.removesuffix("\n") + "\n" for line, is_kept in found if is_kept).encode())
        self._file = open(path, "a", encoding="utf-8", newline="\n", buffering=1)  # a report reads each line

    def log(self, step: int, values: Mapping[str, object]) -> None:
        """Add a line with the numbers and texts among `values`. A number that is not finite becomes null."""
        plain = {name: value for name, value in values.items() if isinstance(value, (int, float, str))}
        finite = {name: value if isinstance(value, str) or math.isfinite(value) else None for name, value in plain.items()}
        self._file.write(json.dumps({"stage": self._stage, "step": step, **finite}, ensure_ascii=False) + "\n")

    def flush(self) -> None:
        """Put every line on disk. A deleted file could still be written to, but nobody could read it: it raises OSError."""
        self._file.flush()
        os.fsync(self._file.fileno())
        if not os.fstat(self._file.fileno()).st_nlink:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._file.name)

    def close(self) -> None:
        self._file.close()


def _is_own_file(path: Path) -> bool:
    """Whether it can be read: a pipe would block, and a link leads elsewhere."""
    return path.is_file() and not path.is_symlink()


def _entries(path: Path) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
    """The lines of a file that may be a stranger's, with stage, step and values; without what is damaged or too much."""
    left = MAX_READ
    with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
        while left > 0 and (line := file.readline(MAX_LINE)):
            left -= len(line)
            try:
                values = json.loads(line)
                stage, step = values.pop("stage", 1), values.pop("step")
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue
            if type(step) is int and 0 <= step < 10**15 and type(stage) is int and 0 < stage < 99:
                yield line, stage, step, values


@dataclass(frozen=True)
class MetricsLog:
    """The curves and the samples of a model of a run, in the order of its steps."""

    stage: int = 1
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)  # by name, such as val/loss
    samples: list[tuple[int, str]] = field(default_factory=list)

    def curve(self, name: str) -> list[tuple[int, float]]:
        """The points (step, value) of a metric; none if it was not logged."""
        return self.curves.get(name, [])


def read_metrics(folder: Path) -> list[MetricsLog]:
    """The logs of the models of a run, the newest last; without what is damaged, goes back in time or fits no chart."""
    logs, path, last = [MetricsLog()], folder / METRICS, (0, -1)
    for _, stage, step, values in _entries(path) if _is_own_file(path) else ():
        if (stage, step) < last or EVENT in values:
            continue
        if stage > logs[-1].stage:
            logs.append(MetricsLog(stage))
        last = (stage, step)
        for name, value in values.items():
            if name == "sample" and isinstance(value, str):
                logs[-1].samples.append((step, value))
            elif name != "sample" and type(value) in (int, float) and -LARGEST < value < LARGEST:
                logs[-1].curves.setdefault(name, []).append((step, float(value)))
    return logs


@dataclass(frozen=True, kw_only=True)
class Status:
    """A run as its process has described it. Whether it still does it, its lock says."""

    state: str  # one of STATES
    reason: str = ""  # why it has failed
    step: int = 0  # of the present model
    steps: int = 0  # that are planned
    model: str = ""  # which of several; empty for the only one
    seconds_left: float | None = None  # of one that is trained now

    def write(self, folder: Path) -> None:
        """Replace that of the run in `folder`, unless it cannot be written: nothing depends on it."""
        with suppress(OSError):
            publish_file(folder / STATUS, json.dumps(dataclasses.asdict(self)).encode())


def read_status(folder: Path) -> Status | None:
    """That of the run in `folder`; None if there is none that can be understood."""
    path = folder / STATUS
    with suppress(OSError, ValueError, TypeError, RecursionError):
        if path.is_file() and path.stat().st_size <= MAX_STATUS:  # reading a pipe would block
            found = Status(**json.loads(path.read_bytes()))
            numbers, texts = (found.step, found.steps, found.seconds_left or 0.0), (found.state, found.reason, found.model)
            if found.state in STATES and {*map(type, numbers)} <= {int, float} and {*map(type, texts)} == {str}:
                return found
    return None
