"""What a run has decided about the model that it trains: which of its models it is, and how long it trains."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from chargpt.config import MAX_TEACHERS, Config


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
