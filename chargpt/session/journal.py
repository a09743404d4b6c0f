"""What a session prints and records: notices, a progress bar, metrics.jsonl and TensorBoard's file.

The journal never affects the training. Each number is recorded by `Metrics`, and shown by `ProgressBar`.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from chargpt.config import Settings, Source, to_dict
from chargpt.errors import Words
from chargpt.runs.checkpoint_schema import Progress
from chargpt.runs.run import Run
from chargpt.session.metrics import Metrics
from chargpt.session.progress_bar import ProgressBar
from chargpt.terminal import LABEL, Notice, notice, one_line, screen
from chargpt.training.trainer import Step

# The validation loss of the best checkpoint so far. TensorBoard's HParams shows the last value of the first five metrics in
# the order of their names: this name comes first.
BEST = "best/val_loss"
# Settings that it shows of every run, beside those that the user gave. Those that differ come first, then all by their names,
# in five columns; the losses follow. So with few settings, a window of 1,280 pixels shows the first loss.
COMPARED = ("model.n_embd", "model.n_layer", "optim.learning_rate")


class Journal:
    """The notices of one session, and while it records, its progress bar and its metrics."""

    def __init__(self, *, verbose: bool = False) -> None:
        """`verbose` prints details in place of summaries."""
        self.verbose = verbose
        self.lines: list[str] = []  # every line and detail, for details.txt
        self._metrics: Metrics | None = None
        self._bar: ProgressBar | None = None

    # Notices

    def notice(self, label: str, text: Words) -> None:
        """Print a line that everybody needs, above the progress bar if there is one."""
        self.add([Notice(label, text)])

    def add(self, notices: Iterable[Notice]) -> None:
        """Print those of `notices` that this user reads, and keep all but the summaries."""
        for label, text, kind in notices:
            if kind != "summary":
                self.lines.append(f"{label:<{LABEL}}{one_line(text)}")
            if kind != ("summary" if self.verbose else "detail"):
                notice(label, text)

    # Metrics and progress bar

    @contextlib.contextmanager
    def recording(
        self, run: Run | None, settings: Settings, *, progress: Progress, is_new: bool, name: str = ""
    ) -> Iterator[None]:
        """Record a model of `run` in this block, as it is at `progress`. If it is not new, everything up to there is recorded.

        The `name` is shown before its steps. Without a run, in a process that is not the first one, nothing is recorded or
        shown.
        """
        if run is None:
            yield
            return
        self._metrics = Metrics(
            run.folder,
            place=run.place,
            stage=run.stage,
            first_step=progress.first_step,
            step=-1 if is_new else progress.step,
            settings=compared_settings(settings),
        )
        self._bar = ProgressBar(step=progress.step, total=settings.values.train.max_steps, name=name)
        try:
            yield
        finally:
            self._bar.close()
            self._metrics.close()
            self._bar = None

    def advance_bar(self) -> None:
        """Move the progress bar by a step."""
        if self._bar is not None:
            self._bar.advance()

    def set_total(self, total: int) -> None:
        """The run's length has changed."""
        if self._bar is not None:
            self._bar.set_total(total)

    def record_training(self, step: int, loss: float, last: Step, *, chars_per_second: float) -> None:
        """Record the mean training loss since the last record, and how the last step went. A speed of 0 is not known."""
        values = {"train/loss": loss, "lr": last.rate, "grad_norm": last.grad_norm}
        if chars_per_second:
            values["chars_per_second"] = chars_per_second
        self._record(step, values, shown=values)

    def record_evaluation(
        self,
        step: int,
        loss: float | None,
        *,
        sample: str,
        best: float | None = None,
        extra_metrics: Mapping[str, float | np.ndarray] | None = None,
    ) -> None:
        """Record a validation loss in nats per character, the `best` one so far, a sample unless it is empty, and more.

        The loss is None for a run without a validation split.
        """
        values = {} if loss is None else {"val/loss": loss, "val/bits_per_char": loss / math.log(2)}
        best_loss = {} if best is None else {BEST: best}
        self._record(
            step, {**values, **best_loss, **(extra_metrics or {}), **({"sample": sample} if sample else {})}, shown=values
        )

    def record_sample(self, step: int, sample: str) -> None:
        """Record a sample that no evaluation has made, and show it with its step."""
        if self._metrics is not None:
            self._metrics.log(step, {"sample": sample})
            screen().sample(sample, label=f"{step}")

    def _record(self, step: int, values: Mapping[str, float | str | np.ndarray], *, shown: Mapping[str, float]) -> None:
        if self._bar is not None:
            self._bar.show(step, shown)
            if isinstance(sample := values.get("sample"), str):
                screen().sample(sample)
        if self._metrics is not None:
            self._metrics.log(step, values)

    def flush(self) -> None:
        """Put everything recorded so far on disk."""
        if self._metrics is not None:
            self._metrics.flush()


def compared_settings(settings: Settings) -> dict[str, float | str]:
    """The settings by which TensorBoard compares runs: those that the user gave, and COMPARED.

    Only those that decide what a run learns and that stay as they are: the number of steps is not among them, since --minutes
    decides it later, and a resumed run may change it.
    """
    tree = to_dict(settings.values)
    tree["train"] = {name: tree["train"][name] for name in ("batch_size", "accumulate", "seed")}
    values = {f"{section}.{name}": value for section in ("model", "optim", "train") for name, value in tree[section].items()}
    chosen = {name for name in values if settings.sources.get(name) is Source.USER or name in COMPARED}
    return {name: value if isinstance(value, (int, float)) else str(value) for name, value in values.items() if name in chosen}
