"""How far the training of a model has come."""

import dataclasses
import math
from dataclasses import dataclass, field

from chargpt.runs.stage import Length

MAX_SAMPLE = 100_000  # characters of a sample that is kept


@dataclass(kw_only=True)
class Progress:
    """The progress of a run. Together with weights and optimizer state, everything that the rest of the run depends on."""

    step: int = 0  # steps taken
    first_step: int = 0  # the steps of the stages before this one
    seconds: float = 0.0  # that these steps took, without evaluations
    first_loss: float | None = None  # the validation loss before the first step
    evaluated: int | None = None  # the step of the last evaluation
    val_loss: float | None = None  # its result, nats per character
    temperature: float = 1.0  # by which it divided the logits, since this gave the lowest loss
    best_step: int | None = None  # the step of the best checkpoint
    best_loss: float | None = None  # its validation loss
    best_sample: str = ""  # what it wrote; empty if it wrote none, or more than MAX_SAMPLE
    lowest_loss: float | None = None  # of all evaluations; with `checkpoint.best=last`, the best one may have a higher loss
    without_gain: int = 0  # evaluations in a row, at a falling learning rate, that brought no better loss
    loss_sum: float = 0.0  # of the training losses since the last log
    loss_count: int = 0
    train_loss: float | None = None  # the last mean of training losses that was logged
    skipped: list[int] = field(default_factory=list)  # steps whose loss was not finite; each one caused a rollback

    def record_evaluation(
        self, loss: float | None, *, temperature: float = 1.0, sample: str = "", is_falling: bool = True, tolerance: float = 0.0
    ) -> None:
        """The validation loss of the current step is `loss`, with logits divided by `temperature`, and the model has written
        `sample`.

        It is the best step if its loss is lower than the best one before, or less than `tolerance` nats above the lowest one;
        if the loss is None, without a validation split, the newest is. `is_falling` if the learning rate has begun to fall.
        """
        self.evaluated, self.val_loss, self.temperature = self.step, loss, temperature
        lowest, best = (math.inf if value is None else value for value in (self.lowest_loss, self.best_loss))
        if loss is None or loss < max(best, lowest + tolerance):
            self.best_step, self.best_loss, self.without_gain = self.step, loss, 0
            self.best_sample = sample if len(sample) <= MAX_SAMPLE else ""
        elif is_falling:
            self.without_gain += 1
        if loss is not None:
            self.first_loss = loss if self.step == 0 else self.first_loss
            self.lowest_loss = min(lowest, loss)

    def is_finished(self, length: Length, *, patience: int) -> bool:
        """Whether a run has taken all its steps, or `patience` evaluations in a row, if it is not 0, did not improve the loss.
        At the peak of the rate, none counts: the falling rate lowers the loss, even if it rose before."""
        return self.step >= length.steps or 0 < patience <= self.without_gain

    @property
    def is_possible(self) -> bool:
        """Whether the numbers agree, as those of every run do."""
        losses = [loss for loss in (self.lowest_loss, self.best_loss, self.val_loss) if loss is not None]
        if self.evaluated is None or self.best_step is None:
            is_evaluated = self.evaluated is not None or self.best_step is not None or losses or self.first_loss is not None
            evaluation = not is_evaluated and self.best_sample == ""
        else:  # a run without a validation split has no losses
            has_losses = len(losses) == 3 or (not losses and self.first_loss is None)
            evaluation = self.best_step <= self.evaluated <= self.step and has_losses and losses == sorted(losses)
        return evaluation and self.temperature >= 1 and max(self.without_gain, self.loss_count) <= self.step

    def take_mean_loss(self) -> float:
        """The mean training loss since the last call, which becomes `train_loss`."""
        mean, self.loss_sum, self.loss_count = self.loss_sum / self.loss_count, 0.0, 0
        self.train_loss = mean
        return mean

    def copy(self) -> "Progress":
        """An independent copy."""
        return dataclasses.replace(self, skipped=list(self.skipped))
