"""The weights that training begins with: those of a new GPT, but its first layer attends to previous characters.

To predict a character, a model first needs the ones just before it. With random queries and keys, learning to find them takes
a good part of a short training. So each head of the first layer begins as a previous-token head, which models otherwise form
in training (Olsson et al. 2022, arXiv 2209.11895); weights that begin like trained ones are known from image models (Trockman
and Kolter 2023, arXiv 2305.09828). The architecture is the same, all weights are trained. docs/lab/learning.md has the losses.
"""

import math

import torch
from torch import Tensor

from chargpt.config import ModelConfig
from chargpt.model import EMBEDDING_STD, GPT, SINUSOID_SCALE, rotary_table, rotate, sinusoids
from chargpt.runs.blank_model import gpt_config
from chargpt.standard_model import standard_shapes

READ = ("token_embedding", "position_embedding", "blocks.0.attn.qkv")  # the weights that begin with structure
RANDOM_SHARE = 0.1  # the random queries and keys of the first layer are scaled by this
# The score of a head's own distance minus that of the next one, before the softmax. Learned and sinusoidal positions are read
# from the same channels as characters, and a larger difference makes both count more: 1.0 is worse than 0.27 by 0.015 nats.
SCORE_DIFFERENCE = {"rotary": 3.0, "learned": 0.27, "sinusoidal": 0.27}


def initial_model(config: ModelConfig, vocab_size: int) -> GPT:
    """A model to train, from torch's random state. Its first layer attends to previous characters."""
    model = GPT(gpt_config(config), vocab_size)
    attend_to_previous(model)
    return model


@torch.no_grad()
def attend_to_previous(model: GPT) -> None:
    """Let head i of the first layer begin with attention to the character i + 1 places back. The model is on the CPU.

    Its queries become the cosines and sines of angles that grow with the position, and its keys those of i + 1 positions
    later, so the two agree most at this distance. Rotary positions rotate a constant to these angles: the biases of queries
    and keys, or without biases a vector that is added to every token embedding. With them, a head attends to its distance
    almost alone, whatever the characters are. Learned positions begin as sinusoids, so both kinds contain the angles. With
    these, a head attends to the region around its distance, and also to characters that are equal to its own, because queries
    and keys read the same channels.
    """
    config, shapes = model.config, {name: tuple(weights.shape) for name, weights in model.named_parameters()}
    h, C = config.n_head, config.n_embd
    d = C // h
    standard = {name: shape for name, shape in standard_shapes(config, model.vocab_size).items() if name.startswith(READ)}
    if not standard.items() <= shapes.items():  # model.py has been changed: its layers begin as it says
        return
    if config.positions == "learned":
        model.position_embedding.weight.copy_(sinusoids(config.block_size, C) * SINUSOID_SCALE)
    if d < 2 or config.positions not in SCORE_DIFFERENCE:  # no pair for an angle, or no known angles
        return
    qkv = next(iter(model.blocks)).attn.qkv
    target = qkv.weight.view(3, h, d, C)[:2].mul_(RANDOM_SHARE)  # of queries and keys
    if config.positions == "rotary":
        # Only the fastest third of the angles is used. Slow ones hardly differ between neighbouring positions, and add noise.
        cosines = (torch.arange(d // 2) < (d + 5) // 6).float().unsqueeze(1)  # (d / 2, 1)
        if config.bias:
            target = qkv.bias.view(3, h, d, 1)[:2]
        else:
            cosines = cosines * _constant_vector(model)
        sines, turns = torch.zeros_like(cosines), rotary_table(h + 1, d)
    else:
        cosines, sines = _columns_of_sinusoids(C, d // 2)
        turns = rotary_table(h + 1, C)
    turns = turns[:, 1:, : d // 2]  # by 1 to h positions, (2, h, d / 2)
    strength = torch.sqrt(SCORE_DIFFERENCE[config.positions] * math.sqrt(d) / (1 - turns[0, 0]).sum())
    queries = strength * torch.cat((cosines, sines)).T.unsqueeze(1).expand(-1, h, -1)  # (C, h, d); of biases, (1, h, d)
    target[:, :, : queries.size(-1)] += torch.stack((queries, rotate(queries, turns))).permute(0, 2, 3, 1)


def _constant_vector(model: GPT) -> Tensor:
    """Add a vector to every token embedding. Returns a row (C,) that reads 1 from it. The embedding also gives the logits.
    There the vector adds the same number to all of them, which changes no probability."""
    C = model.config.n_embd
    vector = torch.tensor([1.0, -1.0]).repeat(C // 2)
    model.token_embedding.weight += EMBEDDING_STD * vector  # half of the variance, so 1 / sqrt(2) after the norm
    return vector * math.sqrt(2) / C


def _columns_of_sinusoids(C: int, angles: int) -> tuple[Tensor, Tensor]:
    """Rows that read the cosine, and the sine, of each of the fastest angles from a normalised embedding, (angles, C) each.

    LayerNorm subtracts the mean of the channels. The channel of the slowest sine is near 0 in all but very long contexts, so
    after the norm it holds the negative of that mean. Subtracting it restores the other channels.
    """
    amplitude = SINUSOID_SCALE / math.hypot(EMBEDDING_STD, SINUSOID_SCALE / math.sqrt(2))  # after the norm
    rows = torch.zeros(2, angles, C)
    angle, slowest_sine = torch.arange(angles), (C - 1) // 2 * 2
    rows[0, angle, 2 * angle + 1] = rows[1, angle, 2 * angle] = 1 / amplitude
    rows[..., slowest_sine] -= 1 / amplitude
    return rows[0], rows[1]
