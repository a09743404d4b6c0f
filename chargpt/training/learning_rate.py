"""The learning rate as a function of the step."""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

from chargpt.config import OptimConfig


class Schedule(NamedTuple):
    """How the rate falls after the warm-up."""

    begin: Callable[[OptimConfig, int], float]  # the step at which it begins to fall, in a run of this many steps
    remaining: Callable[[float], float]  # the share of the fall that is left, from the share of the decay that is over; 1 to 0


# A new schedule is an entry here, and its name among the types of `OptimConfig.schedule`.
SCHEDULES = {
    "linear": Schedule(
        begin=lambda config, max_steps: max_steps * (1 - config.decay_fraction),
        remaining=lambda done: 1 - done,
    ),
    "cosine": Schedule(
        begin=lambda config, max_steps: 0,
        remaining=lambda done: 0.5 * (1 + math.cos(math.pi * min(1.0, done))),
    ),
}


def learning_rate(step: int, config: OptimConfig, *, max_steps: int) -> float:
    """The rate of step `step`, counted from 0, in a run of `max_steps`.

    The rate rises linearly to its peak during warm-up, which takes at most half of the run. `linear` then holds the peak until
    the last `decay_fraction` of the run and falls in a straight line; `cosine` falls along half a cosine from the end of
    warm-up. Both end at `final_fraction` of the peak.
    """
    warmup = min(config.warmup_steps, max_steps // 2)
    if step < warmup:
        return config.learning_rate * (step + 1) / (warmup + 1)
    done = decay_done(step, config, max_steps=max_steps)
    remaining = max(0.0, SCHEDULES[config.schedule].remaining(done))
    return config.learning_rate * (config.final_fraction + (1 - config.final_fraction) * remaining)


def decay_start(config: OptimConfig, *, max_steps: int) -> float:
    """The step at which the rate begins to fall in a run of `max_steps` whose length was planned once."""
    warmup = min(config.warmup_steps, max_steps // 2)
    return max(warmup, SCHEDULES[config.schedule].begin(config, max_steps))


def decay_done(step: int, config: OptimConfig, *, max_steps: int) -> float:
    """How much of the decay is over at a step after the warm-up: 0 at the peak of the rate, 1 at the end of the run.

    `config.replanned` is a step and how much was over by then. The rest follows from there, over the steps that are left.
    """
    start = decay_start(config, max_steps=max_steps)
    since, before = config.replanned
    if step < since:  # of a run that repeats this one from its settings
        start = min(start, since)
        return before * max(0.0, step - start) / max(1.0, since - start)
    start = since if before else max(start, since)
    return before + (1 - before) * max(0.0, step - start) / max(1.0, max_steps - start)


def replanned(config: OptimConfig, *, step: int, before: int, after: int) -> OptimConfig:
    """`config` for a run of `before` steps that gets another length, `after`, at `step`: its rate goes on from where it is.

    After the peak, the rate never rises, also if the run becomes longer.
    """
    warmup = min(config.warmup_steps, before // 2)
    is_warm = step >= warmup  # a warm-up that is over does not begin again
    done = min(1.0, decay_done(step, config, max_steps=before)) if is_warm else 0.0
    new = dataclasses.replace(config, warmup_steps=min(warmup if is_warm else config.warmup_steps, after // 2))
    is_at_peak = done == 0 and step <= decay_start(new, max_steps=after)
    return dataclasses.replace(new, replanned=(0.0, 0.0) if is_at_peak else (float(step), done))


def never_falls(config: OptimConfig, *, max_steps: int) -> bool:
    """Whether the rate stays at its peak to the end of the run."""
    return learning_rate(max_steps - 1, config, max_steps=max_steps) >= config.learning_rate


def is_falling(step: int, config: OptimConfig, *, max_steps: int) -> bool:
    """Whether the rate has begun to fall by step `step`. True for a rate that never falls."""
    is_warm = step >= min(config.warmup_steps, max_steps // 2)
    is_below_peak = learning_rate(step, config, max_steps=max_steps) < config.learning_rate
    return never_falls(config, max_steps=max_steps) or (is_warm and is_below_peak)
