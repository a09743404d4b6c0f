"""The learning rate as a function of the step."""

import math

from chargpt.config import OptimConfig


def learning_rate(step: int, config: OptimConfig, *, max_steps: int) -> float:
    """The rate of step `step`, counted from 0, in a run of `max_steps`.

    The rate rises linearly to its peak during warm-up, which takes at most half of the run. `linear` then holds the peak until
    the last `decay_fraction` of the run and falls in a straight line; `cosine` falls along half a cosine from the end of
    warm-up. Both end at `final_fraction` of the peak.
    """
    warmup = min(config.warmup_steps, max_steps // 2)
    if step < warmup:
        return config.learning_rate * (step + 1) / (warmup + 1)
    if config.schedule == "linear":
        start = max(warmup, max_steps * (1 - config.decay_fraction))
        remaining = 1 - max(0.0, step - start) / max(1.0, max_steps - start)
    else:
        done = (step - warmup) / max(1, max_steps - warmup)
        remaining = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    return config.learning_rate * (config.final_fraction + (1 - config.final_fraction) * max(0.0, remaining))


def is_falling(step: int, config: OptimConfig, *, max_steps: int) -> bool:
    """Whether the rate has begun to fall by step `step`. True for a rate that never falls."""
    never_falls = learning_rate(max_steps - 1, config, max_steps=max_steps) >= config.learning_rate
    is_warm = step >= min(config.warmup_steps, max_steps // 2)
    return never_falls or (is_warm and learning_rate(step, config, max_steps=max_steps) < config.learning_rate)
