"""The least time that a training step or a sampled character can take: what no program avoids, measured by itself."""

from typing import NamedTuple

import torch
from torch import Tensor

from chargpt.analysis.machine import read_speed, seconds_per_call
from model import GPTConfig


class Floor(NamedTuple):
    """The matrix products of a training step."""

    seconds: float
    flop: float  # floating-point operations; a product of (M, K) and (K, N) has 2 M K N

    @property
    def gflops(self) -> float:
        """GFLOP/s."""
        return self.flop / self.seconds / 1e9


def weight_count(model: GPTConfig, vocab_size: int) -> int:
    """The numbers in the matrices that every character is multiplied with."""
    return 12 * model.n_layer * model.n_embd**2 + vocab_size * model.n_embd


def training_flop(model: GPTConfig, *, batch_size: int, vocab_size: int) -> float:
    """The operations of the products of one step, forward and backward. Those of attention count half, for causality."""
    attention = 6 * model.n_layer * batch_size * model.block_size**2 * model.n_embd
    return 6.0 * batch_size * model.block_size * weight_count(model, vocab_size) + attention


def training_floor(
    model: GPTConfig, *, batch_size: int, vocab_size: int, dtype: torch.dtype, device: torch.device, seconds: float = 0.1
) -> Floor:
    """The matrix products of one training step, forward and backward, each timed by itself at its own shape.

    Those with weights, and half of those of attention, which is what causality leaves of them.
    """
    M, C = batch_size * model.block_size, model.n_embd

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device).to(dtype)

    def timed(a: Tensor, b: Tensor) -> float:
        return seconds_per_call(lambda: a @ b, device, seconds=seconds)

    total = 0.0
    for K, N, count in _matrices(model, vocab_size):
        x, w, g = random(M, K), random(N, K), random(M, N)
        total += count * (timed(x, w.T) + timed(g, w) + timed(g.T, x))
    rows, T, d = batch_size * model.n_head, model.block_size, C // model.n_head
    q, scores = random(rows, T, d), random(rows, T, T)
    # Scores and the gradient of the weights; output and the gradient of q; the gradients of k and v: two of each, and half.
    total += model.n_layer * (timed(q, q.transpose(1, 2)) + timed(scores, q) + timed(scores.transpose(1, 2), q))
    return Floor(total, training_flop(model, batch_size=batch_size, vocab_size=vocab_size))


def sampling_floor(
    model: GPTConfig, texts: int, *, vocab_size: int, device: torch.device, gflops: float, seconds: float = 0.1
) -> float:
    """The seconds that the next character of so many texts takes in float32, at least.

    All weights are read once for all texts, and multiplied with each. Attention reads the keys and the values of a text and
    multiplies them with its query; a text has half of the context on average. The result is the longer of two times: to read
    all of this at the speed of memory, and to multiply at the speed `gflops`.
    """
    # Of each layer: C keys and C values for each of half of the positions.
    weights, cached = weight_count(model, vocab_size), texts * model.n_layer * model.block_size * model.n_embd
    numbers = weights + cached
    reading = 4 * numbers / read_speed(device, numbers=numbers, seconds=seconds) / 1e9
    return max(reading, 2 * (texts * weights + cached) / gflops / 1e9)


def _matrices(model: GPTConfig, vocab_size: int) -> list[tuple[int, int, int]]:
    """The matrices of weights: inputs, outputs, and how many there are of this shape."""
    C, L = model.n_embd, model.n_layer
    return [(C, 3 * C, L), (C, C, L), (C, 4 * C, L), (4 * C, C, L), (C, vocab_size, 1)]
