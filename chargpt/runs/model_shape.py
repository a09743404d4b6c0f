"""The model that a saved state describes: how large it may be, and the shapes of its weights."""

import math

from chargpt.config import ModelConfig
from chargpt.errors import UserError

# Of the largest model that a checkpoint may describe. Training refuses larger ones too, so that every checkpoint can be read.
MAX_LAYERS = 1000
MAX_POSITIONS = 1 << 27  # numbers in a table of positions
MAX_NUMBERS = 1 << 28
MAX_CACHED = 1 << 30  # keys and values of a full block, for one text; 4 GiB


def check_size(shape: ModelConfig, vocab_size: int) -> None:
    """Raise UserError for a model larger than any run may be."""
    positions = shape.block_size * shape.n_embd
    numbers = 12 * shape.n_layer * shape.n_embd**2 + positions + vocab_size * shape.n_embd
    cached = 2 * shape.n_layer * positions
    sizes = {"layers": (shape.n_layer, MAX_LAYERS), "weights": (numbers, MAX_NUMBERS)}
    sizes |= {"numbers for positions": (positions, MAX_POSITIONS), "numbers in memory": (cached, MAX_CACHED)}
    for what, (count, most) in sizes.items():
        if count > most:
            advice = "use a model with a smaller n_layer, n_embd or block_size"
            raise UserError(f"model: too large, with {count:,} {what} (at most {most:,}); {advice}")


def weight_shapes(shape: ModelConfig, vocab_size: int) -> dict[str, tuple[int, ...]]:
    """The names and shapes of the weights of a model; all are float32."""
    C = shape.n_embd
    shapes: dict[str, tuple[int, ...]] = {"token_embedding.weight": (vocab_size, C)}
    if shape.positions == "learned":
        shapes["position_embedding.weight"] = (shape.block_size, C)
    for i in range(shape.n_layer):
        matrices = {"attn.qkv": (3 * C, C), "attn.proj": (C, C), "mlp.up": (4 * C, C), "mlp.down": (C, 4 * C)}
        for name, size in {"norm_1": (C,), "norm_2": (C,), **matrices}.items():
            shapes[f"blocks.{i}.{name}.weight"] = size
            if shape.bias:
                shapes[f"blocks.{i}.{name}.bias"] = size[:1]
    shapes["norm.weight"] = (C,)
    return {**shapes, "norm.bias": (C,)} if shape.bias else shapes


def parameter_count(shape: ModelConfig, vocab_size: int) -> int:
    """The numbers in the weights of a model, which is not made."""
    return sum(map(math.prod, weight_shapes(shape, vocab_size).values()))
