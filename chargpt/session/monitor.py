"""Displays and records a run: metrics, progress bar and notices. It never affects the training."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from chargpt.config import Config, to_dict
from chargpt.runs.run import Run
from chargpt.session.metrics import Metrics
from chargpt.session.progress_bar import ProgressBar
from chargpt.terminal import notice_line
from chargpt.training.trainer import Step, Trainer

# The lowest validation loss so far. TensorBoard's HParams shows the last value of the first five metrics in the order of their
# names: this name comes first.
BEST = "best/val_loss"


class Monitor:
    """The metrics and the progress bar of one run, in its folder."""

    def __init__(self, folder: Path, config: Config, *, step: int, is_new: bool) -> None:
        """For a run at `step`. Of a run that is not new, everything up to `step` is already logged."""
        self._metrics = Metrics(folder, step=-1 if is_new else step, settings=compared_settings(config))
        self._bar = ProgressBar(step=step, total=config.train.max_steps)
        self.sample: str | None = None  # of the last evaluation by this process

    def __enter__(self) -> "Monitor":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()
        self._metrics.close()

    @property
    def train_loss(self) -> float | None:
        """The last mean training loss that was recorded, also by an earlier process of this run."""
        return self._metrics.last.get("train/loss")

    def say(self, label: str, text: str) -> None:
        """Print a notice above the progress bar."""
        self._bar.say(notice_line(label, text))

    def step_done(self) -> None:
        """One step is done."""
        self._bar.advance()

    def set_total(self, total: int) -> None:
        """The run's length has changed."""
        self._bar.set_total(total)

    def log_training(self, step: int, loss: float, last: Step, *, chars_per_second: float) -> None:
        """Record the mean training loss since the last log, and how the last step went."""
        values = {"train/loss": loss, "lr": last.rate, "grad_norm": last.grad_norm}
        if chars_per_second:
            values["chars_per_second"] = chars_per_second
        self._metrics.log(step, values)
        self._bar.show(step, values)

    def log_evaluation(
        self,
        step: int,
        loss: float,
        *,
        sample: str,
        best: float | None = None,
        seen: Mapping[str, float | np.ndarray] | None = None,
    ) -> None:
        """Record a validation loss in nats per character, the `best` one so far, a sample unless it is empty, and what else
        was `seen`."""
        self.sample = sample
        values = {"val/loss": loss, "val/bits_per_char": loss / math.log(2)}
        self._bar.show(step, values)
        if best is not None:
            values[BEST] = best
        self._metrics.log(step, {**values, **(seen or {}), **({"sample": sample} if sample else {})})

    def flush(self) -> None:
        """Put everything logged so far on disk."""
        self._metrics.flush()


class SilentMonitor(Monitor):
    """The monitor of a process that is not the first one: it shows and records nothing."""

    def __init__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def train_loss(self) -> float | None:
        return None

    def say(self, label: str, text: str) -> None:
        pass

    def step_done(self) -> None:
        pass

    def set_total(self, total: int) -> None:
        pass

    def log_training(self, step: int, loss: float, last: Step, *, chars_per_second: float) -> None:
        pass

    def log_evaluation(
        self,
        step: int,
        loss: float,
        *,
        sample: str,
        best: float | None = None,
        seen: Mapping[str, float | np.ndarray] | None = None,
    ) -> None:
        pass

    def flush(self) -> None:
        pass


def open_monitor(trainer: Trainer, run: Run) -> Monitor:
    """The monitor of a training; that of a process that is not the first one is silent."""
    if not trainer.group.is_first:
        return SilentMonitor()
    return Monitor(run.folder, trainer.config, step=trainer.progress.step, is_new=run.saved is None)


def compared_settings(config: Config) -> dict[str, float | str]:
    """The settings that decide what a run learns and that stay as they are, by which TensorBoard compares runs.

    The number of steps is not among them: --minutes decides it later, and a resumed run may change it.
    """
    tree = to_dict(config)
    tree["train"] = {name: tree["train"][name] for name in ("batch_size", "accumulate", "seed")}
    settings = {f"{section}.{name}": value for section in ("model", "optim", "train") for name, value in tree[section].items()}
    return {name: value if isinstance(value, (int, float)) else str(value) for name, value in settings.items()}
