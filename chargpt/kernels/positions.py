"""The kinds of positions as the kernels compute them: what arithmetic.h says of them, and their tables without torch."""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from chargpt.config import ModelConfig

if TYPE_CHECKING:  # writing needs no torch
    from chargpt.model import GPTConfig

SINUSOID_SCALE = 0.08 * math.sqrt(2)  # as in model.py


class Positions(NamedTuple):
    """One kind. `table` makes `GPT.position_table` of all positions, float32, from the weights of a model and its config."""

    table: Callable[[Mapping[str, np.ndarray], "ModelConfig | GPTConfig"], np.ndarray]
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


def supports(config: "ModelConfig | GPTConfig") -> bool:
    """Whether the kernels have the positions of this model. Pairs of numbers of a head are rotated."""
    kind = KINDS.get(config.positions)
    return kind is not None and config.n_embd % config.n_head == 0 and not (kind.rotates and config.n_embd // config.n_head % 2)
