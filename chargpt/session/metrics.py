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

from chargpt.config import Settings, Source, flat
from chargpt.runs.checkpoint_schema import Progress
from chargpt.runs.metrics import MetricsFile
from chargpt.runs.run import Run
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


# The loss of the best checkpoint so far. HParams shows five metrics in the order of their names: this one comes first.
BEST = "best/val_loss"
# Settings that it shows of every run beside those that the user gave: few, so that a window of 1,280 pixels shows this loss.
COMPARED = ("model.n_embd", "model.n_layer", "optim.learning_rate")
# What decides what a run learns, and stays as it is: --minutes and a resumed run change the number of steps.
DECIDES = ("model.", "optim.", "train.batch_size", "train.accumulate", "train.seed")


class Metrics:
    """The numbers and samples of a model of `run`, each step once: lines in metrics.jsonl, and an event file.

    The model is at `progress`; if it is new, nothing of it is recorded. Entries after this step, from before a crash, are
    dropped, since they are logged again. A full disk ends logging with one warning.
    """

    def __init__(self, run: Run, settings: Settings, *, progress: Progress, is_new: bool) -> None:
        """A new model has the charts above in TensorBoard, and the settings by which it compares runs."""
        self.run, self.first_step = run, progress.first_step
        self.lines: MetricsFile | None = None
        self.events: EventFile | None = None  # None, like `lines`, once logging has stopped
        last = progress.first_step + (-1 if is_new else progress.step)
        with self._until_a_failure():
            self.lines = MetricsFile(run.folder, stage=run.stage, step=last)
            self.events = EventFile(run.place, purge_step=last + 1)
            if is_new:  # a resumed run has recorded them
                charts = {"training": {title: ["Multiline", names] for title, names in CHARTS.items()}}
                self.events.add(0, summary.custom_scalars(charts))
                # Without a list of settings for all runs, TensorBoard makes one itself, where those that differ come first.
                self.events.add(0, summary.hparams(compared_settings(settings), {})[1])

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
            stopped = f"no more losses are recorded ({error.strerror or error}); the training continues"
            notice("warning", f"{shown(self.run.folder)}: {stopped}")

    def _close(self) -> None:
        for file in (self.lines, self.events.file if self.events else None):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()  # or the interpreter would try again, and print an error, when it ends
        self.lines = self.events = None


def compared_settings(settings: Settings) -> dict[str, float | str]:
    """The settings by which TensorBoard compares runs: COMPARED, and of those that decide what is learned the user's."""
    values = flat(settings.values)
    given = [name for name in values if name.startswith(DECIDES) and settings.sources.get(name) is Source.USER]
    chosen = {name: values[name] for name in [*COMPARED, *given]}
    return {name: value if isinstance(value, (int, float)) else str(value) for name, value in chosen.items()}


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
