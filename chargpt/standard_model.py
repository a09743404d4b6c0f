"""The model that everything beside model.py computes: GPT-2's with exact GELU; its positions and its weights."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from chargpt.config import ModelConfig

if TYPE_CHECKING:
    from chargpt.model import GPTConfig

SINUSOID_SCALE = 0.08 * math.sqrt(2)  # as in model.py
TOKENS = "token_embedding.weight"


class Positions(NamedTuple):
    """One kind. `table` makes `GPT.position_table` of all positions, float32, from the weights of a model and its config."""

    table: Callable[[Mapping[str, Any], "ModelConfig | GPTConfig"], Any]
    rotates: bool = False  # the table rotates queries and keys; otherwise it is added to the embeddings


def _angles(config: "ModelConfig | GPTConfig", width: int) -> np.ndarray:
    return np.arange(config.block_size)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)


def _sinusoids(_: Mapping[str, np.ndarray], config: "ModelConfig | GPTConfig") -> np.ndarray:
    angle, table = _angles(config, config.n_embd), np.zeros((config.block_size, config.n_embd))
    table[:, 0::2], table[:, 1::2] = np.sin(angle), np.cos(angle)[:, : config.n_embd // 2]
    return table.astype(np.float32) * np.float32(SINUSOID_SCALE)


def _rotations(_: Mapping[str, np.ndarray], config: "ModelConfig | GPTConfig") -> np.ndarray:
    angle = _angles(config, config.n_embd // config.n_head)
    return np.stack((np.cos(angle), np.sin(angle))).astype(np.float32)


KINDS = {
    "learned": Positions(lambda weights, _: weights["position_embedding.weight"]),
    "sinusoidal": Positions(_sinusoids),
    "rotary": Positions(_rotations, rotates=True),
}


def has_positions(config: "ModelConfig | GPTConfig") -> bool:
    """Whether the positions of this model are among KINDS. Pairs of numbers of a head are rotated."""
    kind = KINDS.get(config.positions)
    return kind is not None and config.n_embd % config.n_head == 0 and not (kind.rotates and config.n_embd // config.n_head % 2)


def standard_shapes(config: "ModelConfig | GPTConfig", vocab_size: int) -> dict[str, tuple[int, ...]]:
    """The names and shapes of the weights of a standard model."""
    C = config.n_embd
    shapes: dict[str, tuple[int, ...]] = {TOKENS: (vocab_size, C)}
    if config.positions == "learned":
        shapes["position_embedding.weight"] = (config.block_size, C)
    of_block = {"norm_1": (C,), "attn.qkv": (3 * C, C), "attn.proj": (C, C)}
    of_block |= {"norm_2": (C,), "mlp.up": (4 * C, C), "mlp.down": (C, 4 * C)}
    layers = {f"blocks.{i}.{name}": shape for i in range(config.n_layer) for name, shape in of_block.items()}
    for name, shape in (layers | {"norm": (C,)}).items():
        shapes[f"{name}.weight"] = shape
        if config.bias:
            shapes[f"{name}.bias"] = shape[:1]
    return shapes


def check_shapes(weights: Mapping[str, Any], config: "ModelConfig | GPTConfig", vocab_size: int) -> None:
    """Raise ValueError unless these weights, of torch or NumPy, are those of a standard model: code in C reads no others."""
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if shapes != (needed := standard_shapes(config, vocab_size)):
        name = next(name for name in (*needed, *shapes) if shapes.get(name) != needed.get(name))
        raise ValueError(f"{name} is {shapes.get(name, 'missing')}, not {needed.get(name, 'there')}")


class Parts(dict[str, Any]):
    """What a module like model.py has: functions, classes with their methods, constants. A notebook may replace some."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))
