"""What a session prints and records: notices, a progress bar, metrics.jsonl and TensorBoard's file.

The journal never affects the training. Each number is recorded by `Metrics`, and shown by `ProgressBar`.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from chargpt.config import Settings
from chargpt.errors import Words
from chargpt.runs.checkpoint_schema import Progress
from chargpt.runs.run import Run
from chargpt.session.metrics import Metrics
from chargpt.session.progress_bar import ProgressBar
from chargpt.terminal import LABEL, Notice, notice, one_line, screen


class Journal:
    """The notices of one session, and while it records, its progress bar and its metrics."""

    def __init__(self, *, verbose: bool = False) -> None:
        """`verbose` prints details too."""
        self.verbose = verbose
        self.lines: list[str] = []  # every line and detail, for details.txt
        self._metrics: Metrics | None = None
        self._bar: ProgressBar | None = None

    def notice(self, label: str, text: Words) -> None:
        """Print a line that everybody needs, above the progress bar if there is one."""
        self.add([Notice(label, text)])

    def add(self, notices: Iterable[Notice]) -> None:
        """Print those of `notices` that this user reads, and keep all."""
        for label, text, kind in notices:
            self.lines.append(f"{label:<{LABEL}}{one_line(text)}")
            if self.verbose or kind == "line":
                notice(label, text)

    def warn(self, *problems: Words | None) -> None:
        """Print each problem as a warning; None and empty ones are left out."""
        self.add(Notice("warning", problem) for problem in problems if problem)

    @contextlib.contextmanager
    def recording(
        self, run: Run | None, settings: Settings, *, progress: Progress, steps: int, is_new: bool, name: str = ""
    ) -> Iterator[None]:
        """Record a model of `run` in this block, as it is at `progress` of so many `steps`.

        If it is not new, everything up to there is recorded already.

        The `name` is shown before its steps. Without a run, in a process that is not the first one, nothing is shown.
        """
        if run is None:
            yield
            return
        self._metrics = Metrics(run, settings, progress=progress, is_new=is_new)
        self._bar = ProgressBar(step=progress.step, total=steps, name=name)
        try:
            yield
        finally:
            self._bar.close()
            self._metrics.close()
            self._bar = self._metrics = None

    def move_bar(self, step: int, total: int) -> None:
        """The model is at `step` of `total`."""
        if self._bar is not None:
            self._bar.move(step, total)

    def record(self, step: int, values: Mapping[str, float | str | np.ndarray]) -> None:
        """Record `values` at `step`, see `Metrics.log`; show the losses, the speed and the beginning of the sample."""
        if self._metrics is None or self._bar is None:
            return
        has_line = self._bar.show(step, {name: value for name, value in values.items() if isinstance(value, float)})
        if isinstance(sample := values.get("sample"), str):
            screen().sample(sample, label="" if has_line else f"{step}")
        self._metrics.log(step, values)

    def flush(self) -> None:
        """Put everything recorded so far on disk."""
        if self._metrics is not None:
            self._metrics.flush()
