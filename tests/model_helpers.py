"""Models of every kind of position, with numbers far from those at the start of a training."""

import numpy as np
import torch

from chargpt.model import GPT, GPTConfig

SHAPES = [
    GPTConfig(n_layer=2, n_head=2, n_embd=16, block_size=12, bias=True),
    GPTConfig(n_layer=1, n_head=3, n_embd=15, block_size=9, positions="sinusoidal"),
    GPTConfig(n_layer=2, n_head=2, n_embd=20, block_size=10, positions="rotary"),
    GPTConfig(n_layer=1, n_head=1, n_embd=1, block_size=1),
]
V = 13


def new_model(config: GPTConfig, vocab_size: int = V) -> GPT:
    """A model of random numbers."""
    torch.manual_seed(3)
    model = GPT(config, vocab_size).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    return model


def ids_for(config: GPTConfig, texts: int = 5) -> torch.Tensor:
    """Random ids, (texts, block_size)."""
    return torch.from_numpy(np.random.default_rng(0).integers(0, V, (texts, config.block_size)))
