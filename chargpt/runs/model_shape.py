"""The model that a saved state describes: how large it may be, and a model of that shape without weights."""

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode

from chargpt.model import GPT, GPTConfig
from chargpt.terminal import UserError

# The largest model that a checkpoint may describe. Training refuses larger models too, so that every checkpoint can be read.
MAX_LAYERS = 1000
MAX_POSITIONS = 1 << 27  # numbers in a table of positions
MAX_NUMBERS = 1 << 28
MAX_CACHED = 1 << 30  # keys and values of a full block, for one text; 4 GiB


def check_size(shape: GPTConfig, vocab_size: int) -> None:
    """Raise UserError for a model larger than any run may be."""
    positions = shape.block_size * shape.n_embd
    numbers = 12 * shape.n_layer * shape.n_embd**2 + positions + vocab_size * shape.n_embd
    cached = 2 * shape.n_layer * positions
    if shape.n_layer > MAX_LAYERS or positions > MAX_POSITIONS or numbers > MAX_NUMBERS or cached > MAX_CACHED:
        raise UserError(
            f"model: {shape.n_layer:,} layers, block_size {shape.block_size:,}, {numbers:,} weights, "
            f"{cached:,} keys and values; use at most {MAX_LAYERS:,} layers, {MAX_NUMBERS:,} weights, and "
            f"{MAX_CACHED:,} keys and values (2 x layers x block_size x n_embd)"
        )


def blank_model(shape: GPTConfig, vocab_size: int) -> GPT:
    """A model whose weights are still to be loaded. Initial ones would cost seconds and change the global random state."""
    with _WithoutInitialisation():
        return GPT(shape, vocab_size)


class _WithoutInitialisation(TorchFunctionMode):
    """Leaves new weights uninitialised. (torch's meta device would do as well, but takes more than a second to import.)"""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs.get("tensor", *args[:1])
        return func(*args, **kwargs)
