"""Settings for a training that begins with the weights of another run: low rates, few epochs, an early end.

A model that knows its language forgets it at the rates of a training from scratch, and memorises a short text in a few epochs.
"""

import math
from collections.abc import Collection, Mapping, Sequence

from chargpt.config import Config, apply_overrides
from chargpt.planning.candidates import DEFAULT_SECONDS, chooses, training_speed
from chargpt.planning.teachers import Teacher
from chargpt.text.corpus import Corpus
from chargpt.training.evaluation import evaluate, validation_part
from chargpt.training.optimizers import OPTIMIZERS
from model import GPT

EPOCHS = 6  # at most
WARMUP_STEPS, WEIGHT_DECAY, DROPOUT = 5, 0.1, 0.0
EVALUATIONS = 2 * EPOCHS  # of the whole run
PATIENCE = 4  # evaluations: two epochs
STEP_CHARACTERS = (512, 2048)  # least and most
STEPS = 1200  # about, if the text is long enough
MEASURED = 20_000  # characters of the validation part on which the loss of a start is measured; on a CPU, so not more
IN_STEPS = 0.8  # of the time; the rest is for the start of the program, evaluations and as a reserve


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
    """The loss of a model that is to be trained further, on the validation part, in nats per character."""
    loss = evaluate(model, validation_part(corpus.val, MEASURED))
    assert loss is not None  # no signal ends this evaluation
    return loss


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
