"""A model that decode.c alone computes: texts continue without torch, as `CDecoder` continues them."""

import ctypes
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from chargpt.config import ModelConfig
from chargpt.processor import core_count
from chargpt.sampling.c_texts import CTexts, NewIds, Weights
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.random_numbers import RandomNumbers

SINUSOID_SCALE = 0.08 * math.sqrt(2)  # as in model.py


@dataclass(frozen=True, kw_only=True)
class CWriter:
    """A model by its weights, float32, by name. The sampling rules are those that decode.c knows. See `Writer`."""

    weights: Mapping[str, np.ndarray]
    config: ModelConfig
    vocab_size: int
    kernel: ctypes.CDLL

    def pieces(
        self,
        prompts: Sequence[Sequence[int]],
        length: int,
        options: SamplingOptions,
        *,
        seeds: Sequence[int],
        never_sampled: Sequence[int],
    ) -> Iterator[NewIds]:
        size, forbidden = self.config.block_size, np.array(never_sampled, np.int64)
        texts = CTexts(
            Weights(self.weights.get, lambda name: (self.weights[name], None), position_table(self.weights, self.config)),
            self.config,
            self.vocab_size,
            len(seeds),
            kernel=self.kernel,
            precision="float32",
            threads=core_count(),
        )
        random = [RandomNumbers(seed) for seed in seeds]
        new = np.array(prompts, np.int64)[:, -size:]  # (B, T)
        window, cached = new[:, :0], 0  # what was read, and how many ids of its end are in the cache
        while length > 0:
            window = np.concatenate((window, new), axis=1)[:, -size:]
            start, ids = cached, new
            if start + new.shape[1] > size:  # as in Decoder.place
                if options.overflow == "refill":
                    window = window[:, -max(1, size // 2) :]
                start, ids = 0, window
            cached = start + ids.shape[1]
            piece = texts.write(
                start,
                ids,
                min(length, size - cached + 1),
                options,
                uniform=lambda count: np.stack([numbers.uniform(count) for numbers in random], axis=1),
                forbidden=forbidden,
            )
            yield piece
            read = piece.ids[:-1].T  # the last ids are not in the cache yet
            window, cached = np.concatenate((window, read), axis=1), cached + read.shape[1]
            length, new = length - len(piece.ids), piece.ids[-1:].T


def position_table(weights: Mapping[str, np.ndarray], config: ModelConfig) -> np.ndarray:
    """`GPT.position_table` of all positions, float32."""
    if config.positions == "learned":
        return weights["position_embedding.weight"]
    width = config.n_embd if config.positions == "sinusoidal" else config.n_embd // config.n_head
    frequency = 10000.0 ** (-np.arange(0, width, 2) / width)
    angle = np.arange(config.block_size)[:, None] * frequency
    if config.positions == "rotary":
        return np.stack((np.cos(angle), np.sin(angle))).astype(np.float32)
    table = np.zeros((config.block_size, width))
    table[:, 0::2], table[:, 1::2] = np.sin(angle), np.cos(angle)[:, : width // 2]
    return table.astype(np.float32) * np.float32(SINUSOID_SCALE)
