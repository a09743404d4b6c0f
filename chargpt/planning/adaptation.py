"""Settings for a training that begins with the weights of another run: low rates, few epochs, an early end.

A model that knows its language forgets it at the rates of a training from scratch, and memorises a short text in a few epochs.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from chargpt.config import Config, apply_overrides
from chargpt.model import GPT
from chargpt.planning.chosen_for_minutes import DEFAULT_SECONDS, chooses, training_speed
from chargpt.planning.teachers import Teacher
from chargpt.runs.checkpoint_schema import SavedState
from chargpt.runs.load import corpus_in_cache
from chargpt.terminal import UserError
from chargpt.text.corpus import Corpus
from chargpt.training.evaluation import evaluate, validation_split
from chargpt.training.optimizers import OPTIMIZERS

# Epochs of a run, at most.
EPOCHS = 6
# Steps in which the rate rises.
WARMUP_STEPS = 5
# What AdamW needs from scratch for few epochs.
WEIGHT_DECAY = 0.1
DROPOUT = 0.0
# Evaluations of the whole run.
EVALUATIONS = 2 * EPOCHS
# Evaluations without a better loss, after which the run ends: two epochs.
PATIENCE = 4
# Characters in a step: least and most.
STEP_CHARACTERS = (512, 2048)
# Steps, about, if the text is long enough.
STEPS = 1200
# Characters of the validation split on which the loss of a start is measured; on a CPU, so not more.
MEASURED = 20_000
# Share of the time for steps; the rest is for the start of the program, evaluations and as a reserve.
IN_STEPS = 0.8
# Passages of the validation split that are looked for in the text of a start.
PASSAGES = 32
# Characters of a passage: so long a one is seldom in two texts by chance.
PASSAGE = 64
# Share of the passages that are found, from which on losses look too good.
FOUND = 0.2
# Ids that are searched at a time.
SEARCHED = 2**24


def adapt(
    config: Config,
    corpus: Corpus,
    *,
    given: Collection[str],
    keep: Collection[str],
    minutes: float | None,
    processes: int = 1,
    teachers: Sequence[Teacher] = (),
) -> Config:
    """`config` for a run from the weights of another one.

    What is `given`, as section.key, decides which length and which optimizer are left to choose. Of the rest, only what is in
    `keep` stays: the rate of a preset is one for a training from scratch. `minutes` is the user's limit; without
    one, the run takes at most the time of a default run. EPOCHS epochs may end it earlier.
    """
    if chooses(given, minutes=minutes):
        name = "adamw" if minutes is None else "muon"
        config = apply_overrides(config, _unless(given, {"optim.name": name}))
        config = apply_overrides(config, _unless(given, {"train.batch_size": _batch(config, len(corpus.train))}))
        seconds = DEFAULT_SECONDS if minutes is None else 60 * minutes
        config = apply_overrides(config, _unless(given, {"train.max_epochs": EPOCHS}))
        possible = processes * training_speed(config, corpus, teachers) * IN_STEPS * seconds
        seen = min((config.train.max_epochs or math.inf) * len(corpus.train), possible)
        config = apply_overrides(config, [f"train.max_steps={max(1, math.ceil(seen / config.chars_per_step))}"])
    interval = max(1, math.ceil(config.train.max_steps / EVALUATIONS))
    settings = {
        "model.dropout": DROPOUT,
        "optim.learning_rate": min(config.optim.learning_rate, OPTIMIZERS[config.optim.name].start_rate),
        "optim.weight_decay": WEIGHT_DECAY,
        "optim.warmup_steps": WARMUP_STEPS,
        "optim.decay_fraction": 1.0,  # the rate falls from the first steps on, and patience counts from there
        "train.patience": PATIENCE,
        "train.eval_interval": interval,
        "checkpoint.interval": interval,
    }
    return apply_overrides(config, _unless(keep, settings))


def start_loss(model: GPT, corpus: Corpus) -> float:
    """The loss of a model that is to be trained further, on the validation split, in nats per character."""
    loss = evaluate(model, validation_split(corpus.val, MEASURED), marks=corpus.marks)
    assert loss is not None  # no signal ends this evaluation
    return loss


def has_seen_validation(state: SavedState, corpus: Corpus, *, root: Path) -> bool:
    """Whether the training text of the run with this `state` holds the validation split of `corpus`, as far as can be told.

    Its text is in a cache of `root`, or it has the same name; the same split of the same text holds nothing of it.
    """
    if state.fingerprint == corpus.fingerprint:
        return False
    other = corpus_in_cache(state.config, state.tokenizer, state.fingerprint, root=root)
    if other is None:
        return bool({*state.texts} & {*corpus.texts})
    if (other.tokenizer.characters is None) != (corpus.tokenizer.characters is None):
        return False
    starts = np.linspace(0, max(0, len(corpus.val) - PASSAGE), PASSAGES).astype(int)
    passages = [corpus.tokenizer.decode(corpus.val[start : start + PASSAGE]) for start in sorted({*starts.tolist()})]
    return sum(_occurs(passage, other) for passage in passages) >= FOUND * len(passages)


def _occurs(passage: str, other: Corpus) -> bool:
    """Whether the training split of `other` holds `passage`."""
    try:
        ids = other.tokenizer.encode(passage).astype(other.train.dtype)
    except UserError:  # it has a character that is not in that text
        return False
    wanted, size = ids.tobytes(), ids.itemsize
    for start in range(0, len(other.train), SEARCHED):
        block, at = other.train[start : start + SEARCHED + len(ids)].tobytes(), -1
        while (at := block.find(wanted, at + 1)) >= 0:
            if at % size == 0:
                return True
    return False


def describe_adaptation(config: Config, *, characters: int) -> str:
    """A line on the settings that `adapt` chose. `characters` is the length of the training text."""
    epochs = config.train.max_steps * config.chars_per_step / characters
    regular = f"weight decay {config.optim.weight_decay:g} and dropout {config.model.dropout:g}"
    return f"{config.optim.name}, rate {config.optim.learning_rate:g}, {regular} for at most {epochs:.1f} epochs from a start"


def _batch(config: Config, characters: int) -> int:
    """Windows in a batch; a multiple of train.chunks."""
    least, most = STEP_CHARACTERS
    wanted = min(most, max(least, EPOCHS * characters / STEPS)) / config.model.block_size / config.train.accumulate
    chunks = max(1, config.train.chunks)
    return chunks * max(1, round(wanted / chunks))


def _unless(given: Collection[str], settings: Mapping[str, object]) -> list[str]:
    return [f"{key}={value}" for key, value in settings.items() if key not in given]
