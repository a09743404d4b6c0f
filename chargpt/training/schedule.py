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
        start = max(warmup, decay_start(config, max_steps=max_steps))
        remaining = 1 - max(0.0, step - start) / max(1.0, max_steps - start)
    else:
        done = (step - warmup) / max(1, max_steps - warmup)
        remaining = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    return config.learning_rate * (config.final_fraction + (1 - config.final_fraction) * max(0.0, remaining))


def decay_start(config: OptimConfig, *, max_steps: int) -> float:
    """The step after which the rate falls, if the warm-up is over by then: 0 for `cosine`."""
    return max_steps * (1 - config.decay_fraction) if config.schedule == "linear" else 0.0
