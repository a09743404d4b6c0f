"""The size of the model that a saved state describes: the names and shapes of its weights, as model.py makes them."""

import math

from chargpt.config import ModelConfig
from chargpt.errors import UserError
from chargpt.standard import is_standard
from chargpt.standard_model import standard_shapes

# Of the largest model that a checkpoint may describe. Training refuses larger ones too, so that every checkpoint can be read.
MAX_LAYERS = 1000
MAX_POSITIONS = 1 << 27  # numbers in a table of positions
MAX_NUMBERS = 1 << 28
MAX_CACHED = 1 << 30  # keys and values of a full block, for one text; 4 GiB


def check_size(shape: ModelConfig, vocab_size: int) -> None:
    """Raise UserError for a model larger than any run may be. No model is made for it."""
    layers, positions = min(shape.n_layer, MAX_LAYERS), shape.block_size * shape.n_embd
    numbers = shape.n_embd * (12 * layers * shape.n_embd + vocab_size) + positions  # a standard model has about as many
    cached = 2 * shape.n_layer * positions
    sizes = {"layers": (shape.n_layer, MAX_LAYERS), "weights": (numbers, MAX_NUMBERS)}
    sizes |= {"numbers for positions": (positions, MAX_POSITIONS), "numbers in memory": (cached, MAX_CACHED)}
    for what, (count, most) in sizes.items():
        if count > most:
            advice = "use a model with a smaller n_layer, n_embd or block_size"
            raise UserError(f"model: too large, with {count:,} {what} (at most {most:,}); {advice}")


def weight_shapes(shape: ModelConfig, vocab_size: int) -> dict[str, tuple[int, ...]]:
    """The names and shapes of the weights, all float32, of model.py, which is not asked if it is the standard one."""
    return standard_shapes(shape, vocab_size) if is_standard(shape) else _shapes_of_module(shape, vocab_size)[0]


def parameter_count(shape: ModelConfig, vocab_size: int) -> int:
    """The numbers that a model learns; it is not made, or not initialised, as in `weight_shapes`."""
    if is_standard(shape):
        return sum(map(math.prod, standard_shapes(shape, vocab_size).values()))
    return _shapes_of_module(shape, vocab_size)[1]


def _shapes_of_module(shape: ModelConfig, vocab_size: int) -> tuple[dict[str, tuple[int, ...]], int]:
    """What `state_dict` of model.py's GPT holds, and the number of its parameters."""
    from chargpt.runs.blank_model import blank_model

    gpt = blank_model(shape, vocab_size)
    return {name: tuple(tensor.shape) for name, tensor in gpt.state_dict().items()}, sum(p.numel() for p in gpt.parameters())
