"""The metrics of a training: what an evaluation records besides the loss, and what metrics.jsonl has recorded, read back."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from chargpt.analysis.copies import longest_copy
from chargpt.analysis.heads import draw_attention
from chargpt.config import TrainConfig
from chargpt.model import GPT
from chargpt.text.corpus import Corpus
from chargpt.text.items import ItemMarks
from chargpt.training.evaluation import validation_split

# A larger number is not a measurement, and would overflow in a chart.
LARGEST = 1e30
METRICS = "metrics.jsonl"


def extra_metrics(
    model: GPT, corpus: Corpus, config: TrainConfig, *, sample: str, loss: float
) -> dict[str, float | np.ndarray]:
    """The metrics of `model` at an evaluation in addition to its `loss`: numbers and pictures (height, width, 3).

    Uses no random state.

    `novelty/longest_copy` is the length of the longest passage of `sample` that occurs in the training text; absent without a
    sample or an index. `val/bits_per_item` is the mean over the items that the loss is of; absent if it is of a part of one.
    `attention` is a picture of all heads at the start of the validation split, if the settings ask for it.
    """
    metrics: dict[str, float | np.ndarray] = {}
    if corpus.marks is not None:
        split = validation_split(corpus.val, config.eval_chars)
        if characters := characters_per_item(split, corpus.marks):
            metrics["val/bits_per_item"] = loss / math.log(2) * characters
    longest = longest_copy(corpus, sample)
    if longest is not None:
        metrics["novelty/longest_copy"] = float(longest)
    if config.log_attention:
        metrics["attention"] = draw_attention(model, corpus.val)
    return metrics


def characters_per_item(ids: np.ndarray, marks: ItemMarks) -> float:
    """The mean number of characters of the complete items in `ids`, with the end of each, without labels; 0 of none."""
    _, stops = marks.bounds(ids)
    return float(marks.counted(ids)[: stops[-1] + 1].sum() / len(stops)) if len(stops) else 0.0


@dataclass(frozen=True)
class MetricsLog:
    """The curves and the samples of a run, in the order of its steps."""

    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)  # by name, such as val/loss
    samples: list[tuple[int, str]] = field(default_factory=list)

    def curve(self, name: str) -> list[tuple[int, float]]:
        """The points (step, value) of a metric; none if it was not logged."""
        return self.curves.get(name, [])

    @property
    def last_step(self) -> int:
        """The last step with an entry; 0 without any."""
        return max((points[-1][0] for points in self.curves.values()), default=0)

    def training_seconds(self, chars_per_step: int) -> float | None:
        """About how long the steps took, without evaluations; None if no speed was logged."""
        seconds, before = 0.0, 0
        for step, speed in self.curve("chars_per_second"):
            if speed > 0:
                seconds += (step - before) * chars_per_step / speed
                before = step
        return seconds or None


def read_metrics(folder: Path) -> MetricsLog:
    """The log of the run in `folder`. Lines that are damaged or go back in time are skipped; without a file it is empty."""
    log, path, last = MetricsLog(), folder / METRICS, -1
    if path.is_symlink() or not path.is_file():  # reading a pipe would block, and a link leads elsewhere
        return log
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
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
                elif type(value) in (int, float) and math.isfinite(value) and abs(value) < LARGEST:
                    log.curves.setdefault(name, []).append((step, float(value)))
    return log
