"""What a preset written for a megabyte of text should be for the text at hand: how long, and with how much dropout."""

import math
from collections.abc import Collection

import torch

from chargpt.config import Config, apply_overrides
from model import GPT

# Measured with 0.8 million parameters on 0.09, 0.3 and 1 million characters.
MOST_EPOCHS = 10
DROPOUT = 0.1
FEWEST_STEPS = 200


def suited(config: Config, *, characters: int, vocab_size: int, given: Collection[str]) -> tuple[Config, str]:
    """`config` for so many `characters` to learn from, and a line that says what was chosen, or nothing.

    Where there are fewer characters than parameters, a model learns them by heart: it sees them less often, with dropout.
    Settings that the user has `given` stay.
    """
    with torch.device("meta"):  # counted, not made
        parameters = GPT(config.model, vocab_size).parameter_count()
    if characters >= parameters:
        return config, ""
    train, changes, chosen = config.train, {}, []
    per_step = train.batch_size * train.accumulate * config.model.block_size
    steps = max(FEWEST_STEPS, math.ceil(MOST_EPOCHS * characters / per_step))
    if steps < train.max_steps and "train.max_steps" not in given:
        share = steps / train.max_steps
        changes["train.max_steps"] = steps
        changes["train.eval_interval"] = max(1, round(train.eval_interval * share))
        changes["checkpoint.interval"] = max(1, round(config.checkpoint.interval * share))
        changes["optim.warmup_steps"] = min(config.optim.warmup_steps, steps // 10)
        chosen.append(f"{steps:,} steps")
    if config.model.dropout < DROPOUT and "model.dropout" not in given:
        changes["model.dropout"] = DROPOUT
        chosen.append(f"dropout {DROPOUT:g}")
    config = apply_overrides(config, [f"{key}={value}" for key, value in changes.items() if key not in given])
    why = f"{parameters:,} parameters would learn {characters:,} characters by heart"
    return config, f"{' and '.join(chosen)}, since {why}" if chosen else ""
