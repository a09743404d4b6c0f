"""What a session prints and records: notices, a progress bar, metrics.jsonl and TensorBoard's file.

The journal never affects the training: what cannot be recorded, as on a full disk, costs one warning.
"""

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from chargpt.errors import Words
from chargpt.formatting import shown
from chargpt.notices import Kind, Notice, TrainingProgress
from chargpt.runs.metrics import EVENT, MetricsFile, Status
from chargpt.runs.run import Run
from chargpt.runs.stage import Progress
from chargpt.screen import notice, notice_line, screen
from chargpt.settings import Settings

if TYPE_CHECKING:
    from chargpt.session.tensorboard import EventFile

APART = 0.1  # seconds between two tellings of the step alone, at least
HEARTBEAT = 10.0  # seconds after which the run says again on disk that it goes on
TOLD = {"train/loss": "train_loss", "val/loss": "val_loss", "chars_per_second": "chars_per_second", "sample": "sample"}


class Journal:
    """The notices of one session, and while it records, its progress and the files with its numbers."""

    def __init__(self, *, verbose: bool = False) -> None:
        """`verbose` prints details too."""
        self.verbose = verbose
        self.lines: list[str] = []  # every line and detail, for details.txt
        self._told: TrainingProgress | None = None  # the last time; None but while it records
        self._begun, self._told_at = (0, 0.0), 0.0  # the step at which it began and when, and when it was told last
        self._written = -math.inf  # when the run said last on disk that it goes on
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
        """Record a model of `run`, of this `name`, from `progress` of so many `steps` on; without a run, show nothing."""
        if run is None:
            yield
            return
        self._run, self._first_step = run, progress.first_step
        last = self._first_step + (-1 if is_new else progress.step)
        with self._until_a_failure():
            self._files.append(MetricsFile(run.folder, stage=run.stage, step=last))
            self._open_events = functools.partial(_event_file, run, settings if is_new else None, purge_step=last + 1)
        self._begun, self._written = (progress.step, time.perf_counter()), -math.inf
        self._tell(TrainingProgress(step=progress.step, of=steps, model=name))
        try:
            yield
        finally:
            screen().end_progress()
            self.flush()
            self._stop_recording()
            self._told = None

    def move(self, step: int, of: int) -> None:
        """The model is at a step of so many, which is told now and then, and at the end."""
        if self._told is not None:
            self._told = dataclasses.replace(self._told, step=step, of=of)
            if step == of or time.perf_counter() - self._told_at >= APART:
                self._tell(self._told)

    def note(self, state: str, *, step: int, reason: str = "") -> None:
        """The training stops, fails or is finished at this step: a line of the log, and what the run says of itself."""
        if self._told is not None:
            self._told = dataclasses.replace(self._told, step=step)
            with self._until_a_failure():
                values = {EVENT: state, "reason": reason, "time": datetime.now().astimezone().isoformat(timespec="seconds")}
                for file in self._files:
                    file.log(self._first_step + step, values if isinstance(file, MetricsFile) else {})
            self._write_status(state, reason)

    def _write_status(self, state: str, reason: str = "") -> None:
        assert self._told is not None and self._run is not None
        now, self._written = self._told, time.perf_counter()
        told = Status(state=state, reason=reason, step=now.step, steps=now.of, model=now.model, seconds_left=now.seconds_left)
        told.write(self._run.folder)

    def _tell(self, now: TrainingProgress) -> None:
        (first, began), self._told_at = self._begun, time.perf_counter()
        left = (self._told_at - began) / (now.step - first) * (now.of - now.step) if now.step > first else None
        self._told = dataclasses.replace(now, seconds_left=left)
        screen().progress(self._told)
        if self._told_at - self._written >= HEARTBEAT:
            self._write_status("training")

    def record(self, step: int, values: Mapping[str, float | str | np.ndarray]) -> None:
        """Record numbers, texts and, for TensorBoard alone, pictures; tell losses, speed and the sample."""
        if self._told is None:
            return
        new: dict[str, Any] = {name: values[key] for key, name in TOLD.items() if key in values}
        new |= {"evaluated": step} if "val_loss" in new else {}
        self._tell(dataclasses.replace(self._told, step=step, **new))
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


def _event_file(run: Run, settings: Settings | None, *, purge_step: int) -> "EventFile":
    from chargpt.session.tensorboard import EventFile

    return EventFile(run.place, purge_step=purge_step, of_new=settings)
