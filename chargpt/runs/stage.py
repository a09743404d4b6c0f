"""What a run has decided about the model that it trains: which of its models it is, and how long it trains."""

import dataclasses
from dataclasses import dataclass

from chargpt.config import MAX_TEACHERS, Config


@dataclass(frozen=True, kw_only=True)
class Length:
    """The steps of a model, and what follows from them: as the settings say, until the clock fits them to a time."""

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
class Stage:
    """A model of a run."""

    number: int = 1  # which of the models
    length: Length

    @property
    def is_possible(self) -> bool:
        """Whether a run can have such a model."""
        length = self.length
        return 1 <= self.number <= MAX_TEACHERS + 1 and min(length.steps, length.interval) >= 1 and length.decayed <= 1


def as_trained(config: Config, stage: Stage) -> Config:
    """The settings with which another run trains as this one does: those of `config`, with what was decided since."""
    length = stage.length
    return dataclasses.replace(
        config,
        train=dataclasses.replace(config.train, max_steps=length.steps, eval_interval=length.interval),
        optim=dataclasses.replace(config.optim, warmup_steps=length.warmup),
    )
