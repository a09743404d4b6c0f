"""One `log(step, {...})` for TensorBoard and metrics.jsonl. A failure to log never ends a training."""

import contextlib
import os
import socket
import time
from collections.abc import Mapping
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
    """The numbers and samples of a model of a run, each step once: its lines in the `folder` of the run, and its event file in
    its `place`.

    Continues a model whose checkpoint is of `step`; -1 is a new one. `first_step` is added to each step that is logged. Entries
    after `step`, from before a crash, are dropped, since they are logged again. On a full disk or in a folder that has
    vanished, logging stops with one warning.
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
        try:
            self.lines = MetricsFile(folder, stage=stage, step=first_step + step)
            self.events = EventFile((place or folder) / event_file_name(), purge_step=first_step + step + 1)
            if settings and step < 0:  # a resumed run has recorded them
                self._describe(settings)
        except OSError as error:
            self._stop(error)

    def log(self, step: int, values: Mapping[str, float | str | np.ndarray]) -> None:
        """Record `values` at `step`: numbers as scalars, strings as text, and arrays (height, width, 3) of bytes as pictures.

        Pictures are for TensorBoard alone.
        """
        if self.lines is None or self.events is None:
            return
        step += self.first_step
        try:
            for name, value in values.items():
                if isinstance(value, str):
                    self.events.add(step, summary.text(name, _as_markdown(value)))
                elif isinstance(value, np.ndarray):
                    self.events.add(step, summary.image(name, value, dataformats="HWC"))
                else:
                    self.events.add(step, summary.scalar(name, value))
            self.lines.log(step, {name: value for name, value in values.items() if not isinstance(value, np.ndarray)})
        except OSError as error:
            self._stop(error)

    def flush(self) -> None:
        """Put everything logged so far on disk. Called before each checkpoint, so that no step before one is ever lost."""
        if self.lines is not None and self.events is not None:
            try:
                self.events.file.flush()
                os.fsync(self.events.file.fileno())
                self.lines.flush()
            except OSError as error:
                self._stop(error)

    def close(self) -> None:
        """Put everything on disk; nothing more is logged."""
        self.flush()
        self._close()

    def _describe(self, settings: Mapping[str, float | str]) -> None:
        """Record the charts and the settings for TensorBoard.

        Without a list of settings for all runs, TensorBoard makes one itself, where those that differ come first.
        """
        assert self.events is not None
        charts = {"training": {title: ["Multiline", names] for title, names in CHARTS.items()}}
        _, start, _ = summary.hparams(dict(settings), {})
        self.events.add(0, summary.custom_scalars(charts))
        self.events.add(0, start)

    def _stop(self, error: OSError) -> None:
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
    """A TensorBoard event file, written without a thread: tensorboard's own thread prints a traceback on a full disk.

    TensorBoard ignores the entries of older files in the folder from `purge_step` on.
    """

    def __init__(self, path: Path, *, purge_step: int) -> None:
        self.file = open(path, "xb")
        self._records = RecordWriter(self.file)
        self._write(Event(file_version="brain.Event:2"))
        self._write(Event(step=purge_step, session_log=SessionLog(status=SessionLog.START)))

    def add(self, step: int, value: Summary) -> None:
        self._write(Event(step=step, summary=value))

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        self._records.write(event.SerializeToString())


def event_file_name() -> str:
    """A name for a new event file. TensorBoard reads a folder's files in the order of their names."""
    return f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}"


def _as_markdown(text: str) -> str:
    """TensorBoard renders Markdown and removes unsafe HTML; an indented text is a code block, which is shown unchanged."""
    return "\n".join("    " + line for line in escape_controls(text).splitlines())
