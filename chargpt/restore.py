"""From a run on disk to a model in memory: which run is meant, and what model its checkpoint describes."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chargpt.checkpoint import STEP_NAME, Checkpoint, best, load, steps
from chargpt.config import Config, apply
from chargpt.errors import UserError, shown
from chargpt.tokenizer import Tokenizer
from model import GPT

MOST_LAYERS, MOST_NUMBERS = 1000, 1 << 31  # of a model that a checkpoint may describe; more is not worth believing


def find_run(name: str | None, checkpoints: Path) -> Path:
    """The folder of the run `name`: one below `checkpoints`, or a path. None is the run with the newest checkpoint.

    Raises UserError when there is no such run.
    """
    if name is None:
        newest = max(_runs(checkpoints), key=lambda run: steps(run)[-1].stat().st_mtime, default=None)
        if newest is None:
            raise UserError(f"{shown(checkpoints)}: no run there yet; train one first with python train.py")
        return newest
    candidates = [Path(name)]
    if name and Path(name).name == name:  # a plain name, not a path such as ../runs/a
        candidates.insert(0, checkpoints / name)
    for folder in candidates:
        if name and folder.is_dir() and steps(folder):
            return folder
    known = [run.name for run in _runs(checkpoints)]
    close = difflib.get_close_matches(name, known, n=1) or known
    what_to_do = f"use {', '.join(close)}" if close else "train one first with python train.py"
    raise UserError(f"{name or repr(name)}: no run of that name or path; {what_to_do}")


def _runs(checkpoints: Path) -> list[Path]:
    if not checkpoints.is_dir():
        return []
    return sorted(folder for folder in checkpoints.iterdir() if folder.is_dir() and steps(folder))


def find_checkpoint(name: str | None, checkpoints: Path) -> tuple[Checkpoint, list[str]]:
    """The weights that `name` means, the path of one checkpoint or the best of a run (see `find_run`), and warnings.

    Raises UserError when there is none that can be used.
    """
    if name and STEP_NAME.fullmatch(Path(name).resolve().name) and Path(name).is_dir():
        return load(Path(name), expected=expected_weights, training=False), []
    return best(find_run(name, checkpoints), expected=expected_weights)


def expected_weights(state: dict[str, Any]) -> Mapping[str, Tensor]:
    """What the weights of a checkpoint with this state must look like, on the meta device, where a shape costs nothing.

    Raises ValueError for a state that describes no model, or one of absurd size.
    """
    config, tokenizer = _described(state)
    shape = config.model
    numbers = shape.n_embd * (12 * shape.n_layer * shape.n_embd + shape.block_size + tokenizer.vocab_size)
    if shape.n_layer > MOST_LAYERS or numbers > MOST_NUMBERS:
        raise ValueError(f"{shape.n_layer} layers and {numbers:,} weights")
    with torch.device("meta"):
        return GPT(shape, tokenizer.vocab_size).state_dict()


def restore_model(checkpoint: Checkpoint) -> tuple[GPT, Tokenizer, Config]:
    """The model of a checkpoint that was loaded against `expected_weights`, on the CPU; its tokenizer; its settings."""
    config, tokenizer = _described(checkpoint.state)
    model = GPT(config.model, tokenizer.vocab_size)
    model.load_state_dict(checkpoint.weights)
    return model, tokenizer, config


def _described(state: dict[str, Any]) -> tuple[Config, Tokenizer]:
    if not isinstance(state.get("config"), dict):
        raise ValueError("no settings")
    return apply(Config(), state["config"], where="settings"), Tokenizer.from_json(state.get("tokenizer"))
