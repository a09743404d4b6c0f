"""What a preset written for a megabyte of text should be for the text at hand: how long, and with how much weight decay."""

import math
from collections.abc import Collection

import torch

from chargpt.config import Config, apply_overrides
from model import GPT

# Measured by AdamW with 0.8 million parameters. On 90,000 characters of tiny Shakespeare, 18 epochs: a validation loss of 2.25
# with the usual 0.1, 2.26 with dropout 0.2, 2.12 with a weight decay of 1, 2.24 with both; 68 epochs with neither: 4.56. On
# 300,000 characters, 10 epochs: 1.97 with 0.1, 1.93 with 0.5. By Muon with 10.65 million, on a million characters, 10 epochs and
# dropout 0.2 beside it: 1.402 with 0.5, 1.395 with 1.
MOST_EPOCHS = 16
WEIGHT_DECAY = {1: 0.5, 5: 1.0}  # from so many parameters a character on
FEWEST_STEPS = 200


def suited(config: Config, *, characters: int, vocab_size: int, given: Collection[str]) -> tuple[Config, str]:
    """`config` for so many `characters` to learn from, and a line that says what was chosen, or nothing.

    Where there are fewer characters than parameters, a model learns them by heart: it sees them less often, and its weights
    are kept small. Settings that the user has `given` stay.
    """
    with torch.device("meta"):  # counted, not made
        parameters = GPT(config.model, vocab_size).parameter_count()
    if characters >= parameters:
        return config, ""
    train, changes, chosen = config.train, {}, []
    steps = max(FEWEST_STEPS, math.ceil(MOST_EPOCHS * characters / config.chars_per_step))
    if steps < train.max_steps and "train.max_steps" not in given:
        share = steps / train.max_steps
        changes["train.max_steps"] = steps
        changes["train.eval_interval"] = max(1, round(train.eval_interval * share))
        changes["checkpoint.interval"] = max(1, round(config.checkpoint.interval * share))
        changes["optim.warmup_steps"] = min(config.optim.warmup_steps, steps // 10)
        chosen.append(f"{steps:,} steps")
    decay = max(value for least, value in WEIGHT_DECAY.items() if parameters >= least * characters)
    if config.optim.weight_decay < decay and "optim.weight_decay" not in given:
        changes["optim.weight_decay"] = decay
        chosen.append(f"weight decay {decay:g}")
    config = apply_overrides(config, [f"{key}={value}" for key, value in changes.items() if key not in given])
    why = f"{parameters:,} parameters would learn {characters:,} characters by heart"
    return config, f"{' and '.join(chosen)}, since {why}" if chosen else ""
