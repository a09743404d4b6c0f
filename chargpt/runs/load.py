"""From a run on disk to a model in memory: which run is meant, and what model its checkpoint describes."""

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from chargpt.config import Config, apply
from chargpt.runs.checkpoint import STEP_NAME, Checkpoint, best, load, steps
from chargpt.terminal import UserError, shown
from chargpt.text.tokenizer import Tokenizer
from model import GPT, GPTConfig

# The largest model that a checkpoint is believed to describe.
MOST_LAYERS = 1000
MOST_POSITIONS = 1 << 27  # numbers in a table of positions
MOST_NUMBERS = 1 << 28
MOST_LISTED = 10  # checkpoints that an error message names
MOST_CACHED = 1 << 30  # keys and values of a full block, for one text; 4 GiB


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
    if STEP_NAME.fullmatch(Path(name).name) and Path(name).parent.is_dir() and (found := steps(Path(name).parent)):
        listed = ", ".join(path.name for path in found[-MOST_LISTED:])
        raise UserError(f"{name}: no such checkpoint; {len(found)} in this run, use {listed}")
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
    if name and STEP_NAME.fullmatch(Path(name).absolute().name) and Path(name).is_dir():
        return load(Path(name), expected=expected_weights, training=False), []
    return best(find_run(name, checkpoints), expected=expected_weights)


def expected_weights(state: dict[str, Any]) -> Mapping[str, Tensor]:
    """What the weights of a checkpoint with this state must look like.

    Raises ValueError for a state that describes no model, or one of absurd size.
    """
    config, tokenizer = _described(state)
    check_size(config.model, tokenizer.vocab_size)
    return _blank_model(config, tokenizer).state_dict()


def check_size(shape: GPTConfig, vocab_size: int) -> None:
    """Raise UserError for a model that is larger than any run may be: what is written must be what is read again."""
    positions = shape.block_size * shape.n_embd
    numbers = 12 * shape.n_layer * shape.n_embd**2 + positions + vocab_size * shape.n_embd
    cached = 2 * shape.n_layer * positions
    if shape.n_layer > MOST_LAYERS or positions > MOST_POSITIONS or numbers > MOST_NUMBERS or cached > MOST_CACHED:
        raise UserError(
            f"model: {shape.n_layer:,} layers, block_size {shape.block_size:,}, {numbers:,} weights; "
            f"use at most {MOST_LAYERS:,} layers, {MOST_NUMBERS:,} weights, and {MOST_CACHED:,} keys and values "
            f"(2 x layers x block_size x n_embd = {cached:,})"
        )


def restore_model(checkpoint: Checkpoint) -> tuple[GPT, Tokenizer, Config]:
    """The model of a checkpoint that was loaded against `expected_weights`, on the CPU; its tokenizer; its settings."""
    config, tokenizer = _described(checkpoint.state)
    model = _blank_model(config, tokenizer)
    model.load_state_dict(checkpoint.weights)
    return model, tokenizer, config


def settings_of(checkpoint: Checkpoint) -> Config:
    """The settings of a checkpoint that was loaded against `expected_weights`."""
    return _described(checkpoint.state)[0]


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer:
    """Its vocabulary."""
    return _described(checkpoint.state)[1]


class _NoDrawing(TorchFunctionMode):
    """Leaves new weights as the memory was. (The meta device would do for shapes, but takes more than a second to import.)"""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs.get("tensor", *args[:1])
        return func(*args, **kwargs)


def _blank_model(config: Config, tokenizer: Tokenizer) -> GPT:
    """A model whose weights are still to be loaded: random ones would cost seconds, and the global random state."""
    with _NoDrawing():
        return GPT(config.model, tokenizer.vocab_size)


def _described(state: dict[str, Any]) -> tuple[Config, Tokenizer]:
    if not isinstance(state.get("config"), dict):
        raise ValueError("no settings")
    return apply(Config(), state["config"], where="settings"), Tokenizer.from_json(state.get("tokenizer"))
