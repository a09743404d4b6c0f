"""The learning rate as a function of the step."""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

from chargpt.config import OptimConfig
from chargpt.runs.stage import Length


class Schedule(NamedTuple):
    """How the rate falls after the warm-up."""

    begin: Callable[[OptimConfig, int], float]  # the step at which it begins to fall, in a run of this many steps
    remaining: Callable[[float], float]  # the share of the fall that is left, from the share of the decay that is over; 1 to 0


# A new schedule is an entry here, and its name among the types of `OptimConfig.schedule`.
SCHEDULES = {
    "linear": Schedule(
        begin=lambda config, max_steps: max_steps * (1 - config.decay_fraction), remaining=lambda done: 1 - done
    ),
    "cosine": Schedule(
        begin=lambda config, max_steps: 0, remaining=lambda done: 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    ),
}


def learning_rate(step: int, config: OptimConfig, length: Length) -> float:
    """The rate of step `step`, counted from 0, in a run of this `length`.

    The rate rises linearly to its peak during warm-up, which takes at most half of the run. `linear` then holds the peak until
    the last `decay_fraction` of the run and falls in a straight line; `cosine` falls along half a cosine from the end of
    warm-up. Both end at `final_fraction` of the peak.
    """
    if step < length.warmup:
        return config.learning_rate * (step + 1) / (length.warmup + 1)
    remaining = max(0.0, SCHEDULES[config.schedule].remaining(decay_done(step, config, length)))
    return config.learning_rate * (config.final_fraction + (1 - config.final_fraction) * remaining)


def decay_start(config: OptimConfig, length: Length) -> float:
    """The step at which the rate begins to fall if the length was planned once."""
    return max(length.warmup, SCHEDULES[config.schedule].begin(config, length.steps))


def decay_done(step: int, config: OptimConfig, length: Length) -> float:
    """How much of the decay is over at a step after the warm-up: 0 at the peak of the rate, 1 at the end of the run."""
    since, before = length.since, length.decayed
    start = since if before else max(decay_start(config, length), since)
    return before + (1 - before) * max(0.0, step - start) / max(1.0, length.steps - start)


def change_length(length: Length, config: OptimConfig, *, step: int, steps: int, interval: int) -> Length:
    """The length of a run that gets other `steps`, and evaluations at this `interval`, at `step`: its rate goes on from there.
    After the peak, the rate never rises, also if the run becomes longer."""
    if steps == length.steps:
        return dataclasses.replace(length, interval=interval)
    is_warm = step >= length.warmup  # a warm-up that is over does not begin again
    done = min(1.0, decay_done(step, config, length)) if is_warm else 0.0
    warmup = min(length.warmup if is_warm else config.warmup_steps, steps // 2)
    new = Length(steps=steps, warmup=warmup, interval=interval)
    is_at_peak = done == 0 and step <= decay_start(config, new)
    return new if is_at_peak else dataclasses.replace(new, since=step, decayed=done)


def is_falling(step: int, config: OptimConfig, length: Length) -> bool:
    """Whether the rate has begun to fall by step `step`. True for a rate that never falls."""
    never_falls = learning_rate(length.steps - 1, config, length) >= config.learning_rate
    is_below_peak = learning_rate(step, config, length) < config.learning_rate
    return never_falls or (step >= length.warmup and is_below_peak)
