"""What a session prints and records: notices, a progress bar, metrics.jsonl and TensorBoard's file.

The journal never affects the training: what cannot be recorded, as on a full disk, costs one warning.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from chargpt.errors import Words
from chargpt.formatting import shown
from chargpt.notices import Kind, Notice
from chargpt.runs.metrics import MetricsFile
from chargpt.runs.progress import Progress
from chargpt.runs.run import Run
from chargpt.screen import notice, notice_line, screen
from chargpt.session.progress_bar import ProgressBar
from chargpt.settings import Settings

if TYPE_CHECKING:
    from chargpt.session.tensorboard import EventFile


class Journal:
    """The notices of one session, and while it records, its progress bar and the files with its numbers."""

    def __init__(self, *, verbose: bool = False) -> None:
        """`verbose` prints details too."""
        self.verbose = verbose
        self.lines: list[str] = []  # every line and detail, for details.txt
        self._bar: ProgressBar | None = None
        self._files: list[MetricsFile | EventFile] = []  # none but while it records, and none after a failure
        self._open_events: Callable[[], EventFile] | None = None  # TensorBoard's file, which the first record opens
        self._run: Run | None = None  # the one that is recorded
        self._first_step = 0  # of the model, counted from the first one of the run

    def notice(self, kind: Kind, text: Words) -> None:
        """Print a line that everybody needs, above the progress bar if there is one."""
        self.add([Notice(kind, text)])

    def add(self, notices: Iterable[Notice]) -> None:
        """Print those of `notices` that this user reads, and keep all."""
        for kind, text, level in notices:
            self.lines.append(notice_line(kind, str(text)))
            if self.verbose or level == "line":
                notice(kind, text)

    def warn(self, *problems: Words | None) -> None:
        """Print each problem as a warning; None and empty ones are left out."""
        self.add(Notice(Kind.WARNING, problem) for problem in problems if problem)

    @contextlib.contextmanager
    def recording(
        self, run: Run | None, settings: Settings, *, progress: Progress, steps: int, is_new: bool, name: str = ""
    ) -> Iterator[None]:
        """Record a model of `run` in this block, from `progress` of so many `steps` on; its `name` is shown before them.

        If it is not new, everything up to there is recorded already. What comes after, from before a crash, is dropped, since
        it is recorded again. Without a run, in a process that is not the first one, nothing is shown.
        """
        if run is None:
            yield
            return
        self._run, self._first_step = run, progress.first_step
        last = self._first_step + (-1 if is_new else progress.step)
        with self._until_a_failure():
            self._files.append(MetricsFile(run.folder, stage=run.stage, step=last))
            self._open_events = functools.partial(_event_file, run, settings, purge_step=last + 1, is_new=is_new)
        self._bar = ProgressBar(step=progress.step, total=steps, name=name)
        try:
            yield
        finally:
            self._bar.close()
            self.flush()
            self._stop_recording()
            self._bar = None

    def move_bar(self, step: int, total: int) -> None:
        """The model is at `step` of `total`."""
        if self._bar is not None:
            self._bar.move(step, total)

    def record(self, step: int, values: Mapping[str, float | str | np.ndarray]) -> None:
        """Record numbers, texts and, for TensorBoard alone, pictures; show losses, speed and the beginning of the sample."""
        if self._bar is None:
            return
        has_line = self._bar.show(step, {name: value for name, value in values.items() if isinstance(value, float)})
        if isinstance(sample := values.get("sample"), str):
            screen().sample(sample, label="" if has_line else f"{step}")
        with self._until_a_failure():
            if self._open_events is not None:  # not sooner: it imports TensorBoard, and the user sees the first loss before
                self._files.append(self._open_events())
                self._open_events = None
            for file in self._files:
                file.log(self._first_step + step, values)

    def flush(self) -> None:
        """Put everything recorded so far on disk. Called before each checkpoint, so that no step before one is ever lost."""
        with self._until_a_failure():
            for file in self._files:
                file.flush()

    @contextlib.contextmanager
    def _until_a_failure(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._stop_recording()
            assert self._run is not None
            stopped = f"no more losses are recorded ({error.strerror or error}); the training continues"
            self.warn(f"{shown(self._run.folder)}: {stopped}")

    def _stop_recording(self) -> None:
        for file in self._files:
            with contextlib.suppress(OSError):
                file.close()  # or the interpreter would try again, and print an error, when it ends
        self._files, self._open_events = [], None


def _event_file(run: Run, settings: Settings, *, purge_step: int, is_new: bool) -> "EventFile":
    from chargpt.session.tensorboard import EventFile

    events = EventFile(run.place, purge_step=purge_step)
    if is_new:
        events.describe(settings)
    return events
