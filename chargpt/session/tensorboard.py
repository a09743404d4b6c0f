"""TensorBoard's file of a run: numbers, samples and pictures, and the settings by which it compares runs."""

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from torch import Tensor
from torch.utils.tensorboard import summary

from chargpt.device import evaluating
from chargpt.formatting import escape_controls
from chargpt.model import GPT
from chargpt.runs.checkpoint_schema import OTHERS
from chargpt.runs.models import attention_of
from chargpt.settings import Settings, flat

# The charts of TensorBoard's tab "Custom Scalars", from the top: for each chart, which metrics it shows.
CHARTS = {
    "loss (nats per character)": ["^train/loss$", "^val/loss$"],
    "validation loss (bits per character)": ["^val/bits_per_char$"],
    "learning rate": ["^lr$"],
    "gradient norm": ["^grad_norm$"],
    "characters per second": ["^chars_per_second$"],
    "longest copy in the sample (characters)": ["^novelty/longest_copy$"],
}
# Settings that it shows of every run beside those that the user gave: few, so that a window of 1,280 pixels shows this loss.
COMPARED = ("model.n_embd", "model.n_layer", "optim.learning_rate")
MAX_DRAWN = 256  # characters of a picture of attention
COLOUR = np.array([31, 95, 191])  # of a weight of 1, the accent of base.css; a weight of 0 is white
WIDTH, GAP = 128, 4  # pixels that a head takes at most, and between two heads


class EventFile:
    """A new TensorBoard event file in `folder`, which hides older entries from `purge_step` on; that `of_new` models has CHARTS
    too. It has no thread, since that of tensorboard prints a traceback on a full disk. The methods raise OSError."""

    def __init__(self, folder: Path, *, purge_step: int, of_new: Settings | None = None) -> None:
        # TensorBoard reads a folder's files in the order of their names.
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}"
        self.file = open(folder / name, "xb")
        self._records = RecordWriter(self.file)
        self._write(Event(file_version="brain.Event:2"))
        self._write(Event(step=purge_step, session_log=SessionLog(status=SessionLog.START)))
        if of_new is not None:
            charts = {"training": {title: ["Multiline", names] for title, names in CHARTS.items()}}
            self.add(0, summary.custom_scalars(charts))
            # Without a list of settings for all runs, TensorBoard makes one itself, where those that differ come first.
            self.add(0, summary.hparams(compared_settings(of_new), {})[1])

    def log(self, step: int, values: Mapping[str, float | str | np.ndarray]) -> None:
        """Add numbers, texts and pictures (height, width, 3) of bytes."""
        for name, value in values.items():
            if isinstance(value, str):  # indented, it is code in Markdown, which TensorBoard shows unchanged
                lines = escape_controls(value).splitlines()
                self.add(step, summary.text(name, "\n".join("    " + line for line in lines)))
            elif isinstance(value, np.ndarray):
                self.add(step, summary.image(name, value, dataformats="HWC"))
            else:
                self.add(step, summary.scalar(name, value))

    def add(self, step: int, value: Summary) -> None:
        self._write(Event(step=step, summary=value))

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        self._records.write(event.SerializeToString())

    def flush(self) -> None:
        """Put every entry on disk."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def close(self) -> None:
        self.file.close()


def compared_settings(settings: Settings) -> dict[str, float | str]:
    """The settings by which TensorBoard compares runs: COMPARED, and all that the user gave but OTHERS."""
    values = flat(settings.values)
    chosen = {name: values[name] for name in [*COMPARED, *settings.of_user] if name in COMPARED or not name.startswith(OTHERS)}
    return {name: value if isinstance(value, (int, float)) else str(value) for name, value in chosen.items()}


def draw_attention(model: GPT, ids: np.ndarray) -> np.ndarray:
    """The `attention_picture` of all heads on the first of `ids` (T,), at most MAX_DRAWN. The mode of the model stays."""
    length = min(len(ids), model.config.block_size, MAX_DRAWN)
    idx = torch.from_numpy(ids[:length].astype(np.int64)).to(model.token_embedding.weight.device)
    with evaluating(model):
        return attention_picture(attention_of(model, idx[None])[:, 0])


def attention_picture(weights: Tensor) -> np.ndarray:
    """All heads of weights (n_layer, n_head, T, T) as one picture (height, width, 3), uint8, a row for each layer; of a head, a
    row is a character. The shade is the square root of a weight; of those that share a pixel, the largest."""
    n_layer, n_head, T, _ = weights.shape
    width = min(T, WIDTH)
    levels = F.adaptive_max_pool2d(weights.sqrt().float().cpu(), width).numpy()
    gap, side = (GAP, 0), width + GAP
    cells = np.pad(levels, ((0, 0), (0, 0), gap, gap), constant_values=np.nan)  # nan: between the heads
    picture = np.pad(cells.swapaxes(1, 2).reshape(n_layer * side, n_head * side), (0, GAP), constant_values=np.nan)
    shaded = 255 - picture[..., None] * (255 - COLOUR)
    return np.nan_to_num(shaded, nan=200).round().astype(np.uint8)
