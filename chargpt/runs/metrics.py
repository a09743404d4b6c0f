"""metrics.jsonl, the log of a run: written line by line, cut where a resumed run goes on, and read back as curves and samples.

Each line is an object: `step`, and numbers or texts by their names, such as val/loss and sample.
"""

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from chargpt.files import publish_file

METRICS = "metrics.jsonl"
# A larger number is not a measurement, and would overflow in a chart.
LARGEST = 1e30
MAX_LINE = 2**20  # characters; samples are shorter
MAX_READ = 2**28  # characters; a run of weeks writes less


class MetricsFile:
    """The metrics.jsonl of the run in `folder`, to which lines are added. Its methods raise OSError."""

    def __init__(self, folder: Path, *, step: int) -> None:
        """Drop the lines after `step`, and a last line that a crash cut short."""
        path = folder / METRICS
        if os.path.lexists(path):
            _cut(path, step)
        self._file = open(path, "a", encoding="utf-8", newline="\n")

    def log(self, step: int, values: Mapping[str, float | str]) -> None:
        """Add a line. A number that is not finite becomes null."""
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()
        }
        self._file.write(json.dumps({"step": step, **finite}, ensure_ascii=False) + "\n")

    def flush(self) -> None:
        """Put every line on disk. A deleted file could still be written to, but nobody could read it: it raises OSError."""
        self._file.flush()
        os.fsync(self._file.fileno())
        os.stat(self._file.name)

    def close(self) -> None:
        self._file.close()


def _cut(path: Path, step: int) -> None:
    """Keep the whole lines of `path` up to `step`."""
    if path.is_symlink() or not path.is_file():  # reading a pipe would block, and a link leads elsewhere
        raise OSError(f"{path.name} is not a regular file")
    kept: list[str] = []
    for line in _lines(path):
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            if json.loads(line)["step"] <= step:
                kept.append(line.removesuffix("\n") + "\n")
    publish_file(path, "".join(kept).encode())


def _lines(path: Path) -> Iterator[str]:
    """The first MAX_READ characters of a file that may be a stranger's, by line. A line longer than MAX_LINE comes in parts."""
    left = MAX_READ
    with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
        while left > 0 and (line := file.readline(MAX_LINE)):
            left -= len(line)
            yield line


@dataclass(frozen=True)
class MetricsLog:
    """The curves and the samples of a run, in the order of its steps."""

    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)  # by name, such as val/loss
    samples: list[tuple[int, str]] = field(default_factory=list)

    def curve(self, name: str) -> list[tuple[int, float]]:
        """The points (step, value) of a metric; none if it was not logged."""
        return self.curves.get(name, [])


def read_metrics(folder: Path) -> MetricsLog:
    """The log of the run in `folder`. Lines that are damaged or go back in time are skipped; without a file it is empty."""
    log, path, last = MetricsLog(), folder / METRICS, -1
    if path.is_symlink() or not path.is_file():  # reading a pipe would block, and a link leads elsewhere
        return log
    for line in _lines(path):
        try:
            values = json.loads(line)
            step = values.pop("step")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        if type(step) is not int or not max(last, 0) <= step < 10**15:
            continue
        last = step
        for name, value in values.items():
            if name == "sample":
                log.samples.extend([(step, value)] if isinstance(value, str) else [])
            elif type(value) in (int, float) and -LARGEST < value < LARGEST:
                log.curves.setdefault(name, []).append((step, float(value)))
    return log
