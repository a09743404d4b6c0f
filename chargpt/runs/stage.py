"""What a run has decided about the model that it trains, which of its models it is and how long it trains; its progress."""

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path

from chargpt.config import MAX_TEACHERS, Config

MAX_SAMPLE = 100_000  # characters of a sample that is kept


@dataclass(frozen=True, kw_only=True)
class Length:
    """The steps of a model, and what follows from them: as the settings say, until they are fitted to a time."""

    steps: int
    warmup: int  # steps in which the rate rises
    interval: int  # steps between two evaluations
    # The step at which the length last changed while the rate was falling, or late at its peak; and how much of the decay was
    # over then: the rest of it is spread over the steps that were left. 0: the schedule holds from the beginning.
    since: int = 0
    decayed: float = 0.0

    @classmethod
    def of(cls, config: Config, *, steps: int | None = None) -> "Length":
        """The length that the settings give a model, or these `steps`."""
        steps = config.train.max_steps if steps is None else steps
        warmup = min(config.optim.warmup_steps, steps // 2)
        return cls(steps=steps, warmup=warmup, interval=config.train.eval_interval)


@dataclass(frozen=True, kw_only=True)
class Models:
    """What a run has decided about its models, of which the last one learns from those before it; and why."""

    count: int = 1
    is_decided: bool = True  # False: others are planned, and the first one measures whether it has something to teach
    why: str = ""  # there are so many
    seconds: float | None = None  # for each but the last one, at most, which has twice as many; None: as many steps for each
    epochs: float | None = None  # after which each one ends, at most; None: those of the settings

    def seconds_of(self, number: int) -> float | None:
        """The seconds of a model after the first one, at most; None: no limit."""
        return None if self.seconds is None else self.seconds * (1 if number < self.count else 2)

    def seconds_after(self, number: int) -> float:
        """The seconds of all models after this one, at most; 0 without a limit."""
        return sum(self.seconds_of(later) or 0.0 for later in range(number + 1, self.count + 1))


@dataclass(frozen=True, kw_only=True)
class Start:
    """The model with whose weights a run began."""

    name: str
    is_run: bool  # a run of the user; otherwise a start that comes with the program

    def __str__(self) -> str:
        return f"run {self.name}" if self.is_run else self.name


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A model of a run."""

    number: int = 1  # which of the models
    models: Models = Models()
    start: Start | None = None  # None: initial weights
    length: Length
    changed: int = 0  # the step at which last changed what the model learns by, its time, or what computes it; 0: never

    @property
    def is_last(self) -> bool:
        """Whether no other model follows, as far as is known."""
        return self.number >= self.models.count

    @property
    def is_one_of_several(self) -> bool:
        """Whether the run has other models in any case."""
        return self.models.count > 1 and self.models.is_decided

    @property
    def name(self) -> str:
        """Which model of a run this is: `model 2 of 4`; empty for the only one, and while that is not decided."""
        return f"model {self.number} of {self.models.count}" if self.is_one_of_several else ""

    @property
    def is_possible(self) -> bool:
        """Whether a run can have such a model."""
        length, models = self.length, self.models
        is_one = 1 <= self.number <= models.count <= MAX_TEACHERS + 1
        is_named = self.start is None or Path(self.start.name).name == self.start.name != ""  # a name, not a path
        return is_one and is_named and min(length.steps, length.interval) >= 1 and length.decayed <= 1


def as_trained(config: Config, stage: Stage) -> Config:
    """The settings with which another run trains as this one does: those of `config`, with what was decided since."""
    length, models, train = stage.length, stage.models, config.train
    is_shorter = length.warmup != Length.of(config, steps=length.steps).warmup
    epochs = train.max_epochs if models.epochs is None else models.epochs
    decided = {"max_steps": length.steps, "eval_interval": length.interval, "max_epochs": epochs, "teachers": models.count - 1}
    return dataclasses.replace(
        config,
        train=dataclasses.replace(train, **decided),  # type: ignore[arg-type]
        optim=dataclasses.replace(config.optim, warmup_steps=length.warmup if is_shorter else config.optim.warmup_steps),
    )


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
        """Record the loss of this step, None without a validation split, with logits divided by `temperature`, and the
        `sample`.

        It is the best step if its loss is lower than the best one before, or less than `tolerance` nats above the lowest one,
        or None. Others count as without gain while the rate `is_falling`.
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
        """Whether it has taken all steps, or `patience` evaluations in a row, if not 0, were no better as the rate fell."""
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
