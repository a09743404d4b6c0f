"""One `log(step, {...})` for TensorBoard and metrics.jsonl. A failure to log never ends a training."""

import contextlib
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard import summary

from chargpt.runs.metrics import MetricsFile
from chargpt.terminal import escape_controls, notice, shown

# The charts of TensorBoard's tab "Custom Scalars", from the top: for each chart, which metrics it shows.
CHARTS = {
    "loss (nats per character)": ["^train/loss$", "^val/loss$"],
    "validation loss (bits per character)": ["^val/bits_per_char$"],
    "learning rate": ["^lr$"],
    "gradient norm": ["^grad_norm$"],
    "characters per second": ["^chars_per_second$"],
    "longest copy in the sample (characters)": ["^novelty/longest_copy$"],
}


class Metrics:
    """The numbers and samples of a model, each step once: lines in the `folder` of the run, an event file in its `place`.

    Continues a model whose checkpoint is of `step`; -1 is a new one. `first_step` is added to each step that is logged. Entries
    after `step`, from before a crash, are dropped, since they are logged again. A full disk ends logging with one warning.
    """

    def __init__(
        self,
        folder: Path,
        *,
        place: Path | None = None,
        stage: int = 1,
        first_step: int = 0,
        step: int = -1,
        settings: Mapping[str, float | str] | None = None,
    ) -> None:
        """With `settings`, TensorBoard gets the charts above and compares this run with others by its settings."""
        self.folder, self.first_step = folder, first_step
        self.lines: MetricsFile | None = None
        self.events: EventFile | None = None  # None, like `lines`, once logging has stopped
        with self._until_a_failure():
            self.lines = MetricsFile(folder, stage=stage, step=first_step + step)
            self.events = EventFile(place or folder, purge_step=first_step + step + 1)
            if settings and step < 0:  # a resumed run has recorded them
                charts = {"training": {title: ["Multiline", names] for title, names in CHARTS.items()}}
                self.events.add(0, summary.custom_scalars(charts))
                # Without a list of settings for all runs, TensorBoard makes one itself, where those that differ come first.
                self.events.add(0, summary.hparams(dict(settings), {})[1])

    def log(self, step: int, values: Mapping[str, float | str | np.ndarray]) -> None:
        """Record `values` at `step`: numbers, texts and, for TensorBoard alone, pictures (height, width, 3) of bytes."""
        if self.lines is None or self.events is None:
            return
        step += self.first_step
        with self._until_a_failure():
            for name, value in values.items():
                if isinstance(value, str):  # indented, it is code in Markdown, which TensorBoard shows unchanged
                    lines = escape_controls(value).splitlines()
                    self.events.add(step, summary.text(name, "\n".join("    " + line for line in lines)))
                elif isinstance(value, np.ndarray):
                    self.events.add(step, summary.image(name, value, dataformats="HWC"))
                else:
                    self.events.add(step, summary.scalar(name, value))
            self.lines.log(step, {name: value for name, value in values.items() if not isinstance(value, np.ndarray)})

    def flush(self) -> None:
        """Put everything logged so far on disk. Called before each checkpoint, so that no step before one is ever lost."""
        if self.lines is not None and self.events is not None:
            with self._until_a_failure():
                self.events.file.flush()
                os.fsync(self.events.file.fileno())
                self.lines.flush()

    def close(self) -> None:
        """Put everything on disk; nothing more is logged."""
        self.flush()
        self._close()

    @contextlib.contextmanager
    def _until_a_failure(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._close()
            stopped = f"logging stopped ({error.strerror or error}); training continues without it"
            notice("warning", f"{shown(self.folder)}: {stopped}")

    def _close(self) -> None:
        for file in (self.lines, self.events.file if self.events else None):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()  # or the interpreter would try again, and print an error, when it ends
        self.lines = self.events = None


class EventFile:
    """A new TensorBoard event file in `folder`, in which TensorBoard ignores the entries of older ones from `purge_step` on.

    It is written without a thread: tensorboard's own one prints a traceback on a full disk.
    """

    def __init__(self, folder: Path, *, purge_step: int) -> None:
        # TensorBoard reads a folder's files in the order of their names.
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}"
        self.file = open(folder / name, "xb")
        self._records = RecordWriter(self.file)
        self._write(Event(file_version="brain.Event:2"))
        self._write(Event(step=purge_step, session_log=SessionLog(status=SessionLog.START)))

    def add(self, step: int, value: Summary) -> None:
        self._write(Event(step=step, summary=value))

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        self._records.write(event.SerializeToString())
