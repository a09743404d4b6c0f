"""Which settings a run gets: a preset or a YAML file, the command line, and what the text at hand calls for."""

import difflib
import math
from collections.abc import Collection, Sequence
from pathlib import Path

from chargpt.config import Config, apply, apply_overrides
from chargpt.device import choose_device
from chargpt.runs.model_shape import blank_model
from chargpt.terminal import UserError, shown
from chargpt.yaml_file import read_yaml

# Measured with AdamW and 0.8 million parameters. On 90,000 characters of tiny Shakespeare, 18 epochs: a validation loss of
# 2.25 with the usual 0.1, 2.26 with dropout 0.2, 2.12 with a weight decay of 1, 2.24 with both; 68 epochs with neither: 4.56.
# On 300,000 characters, 10 epochs: 1.97 with 0.1, 1.93 with 0.5. With Muon and 10.65 million parameters, on a million
# characters, 10 epochs and dropout 0.2: 1.402 with 0.5, 1.395 with 1.
MAX_EPOCHS = 16
WEIGHT_DECAY = {1: 0.5, 5: 1.0}  # from this many parameters a character on
MIN_STEPS = 200


def load_settings(
    name: str | None, overrides: Sequence[str], *, presets: Path, model: dict | None = None, model_from: str = ""
) -> tuple[Config, Path | None]:
    """The settings of a preset or YAML file `name` (None: the preset for the device) with the `section.key=value` overrides.

    `model` replaces the file's model section; `model_from` names its origin in error messages. Returns the settings and the
    path of the file, None for the built-in defaults, which an installed library uses: the presets stay in the project.
    Raises UserError.
    """
    device = apply_overrides(Config(), [override for override in overrides if override.startswith("runtime.")]).runtime.device
    path = _find_preset(name, choose_device(device).type, presets)
    config = Config() if path is None else apply(Config(), read_yaml(path), where=shown(path))
    if model is not None:
        config = apply(config, {"model": model}, where=model_from)
    return apply_overrides(config, overrides), path


def _find_preset(name: str | None, device_type: str, presets: Path) -> Path | None:
    if name is None:
        if not presets.is_dir():
            return None
        return presets / ("gpu.yaml" if device_type == "cuda" else "cpu.yaml")
    for path in (Path(name), presets / name, presets / f"{name}.yaml"):
        if path.is_file():
            return path
    known = sorted(path.stem for path in presets.glob("*.yaml"))
    close = difflib.get_close_matches(name, known, n=1)
    presets_too = f", or one of {', '.join(known)}" if known else "; presets are in the project's configs folder"
    what_to_do = f"did you mean {close[0]}?" if close else f"give a YAML file{presets_too}"
    raise UserError(f"--config: {name!r} is not a file; {what_to_do}")


def adapt_to_text(config: Config, *, characters: int, vocab_size: int, given: Collection[str]) -> tuple[Config, str]:
    """`config` adapted to a training part of so many `characters`, and a line that says what was changed, empty if nothing was.

    With fewer characters than parameters, a model memorises the text: the run is then shortened and weight decay raised.
    Settings that the user has `given` (as `section.key`) stay.
    """
    parameters = blank_model(config.model, vocab_size).parameter_count()
    if characters >= parameters:
        return config, ""
    train, changes, chosen = config.train, {}, []
    steps = max(MIN_STEPS, math.ceil(MAX_EPOCHS * characters / config.chars_per_step))
    if steps < train.max_steps and "train.max_steps" not in given:
        share = steps / train.max_steps
        changes["train.max_steps"] = steps
        changes["train.eval_interval"] = max(1, round(train.eval_interval * share))
        changes["checkpoint.interval"] = max(1, round(config.checkpoint.interval * share))
        changes["optim.warmup_steps"] = min(config.optim.warmup_steps, steps // 10)
        chosen.append(f"{steps:,} steps")
    decay = weight_decay_for(parameters / characters)
    if config.optim.weight_decay < decay and "optim.weight_decay" not in given:
        changes["optim.weight_decay"] = decay
        chosen.append(f"weight decay {decay:g}")
    config = apply_overrides(config, [f"{key}={value}" for key, value in changes.items() if key not in given])
    why = f"{parameters:,} parameters would memorise {characters:,} characters"
    return config, f"{' and '.join(chosen)}, since {why}" if chosen else ""


def weight_decay_for(parameters_per_character: float) -> float:
    """The least weight decay for a model with one parameter or more for each character of its training text."""
    return max(decay for least, decay in WEIGHT_DECAY.items() if parameters_per_character >= least)
