"""The decoder for a GPU writes the text of decoder.py, also past the context. tests/gpu counts what it asks of a GPU."""

import dataclasses

import pytest
import torch

from chargpt.model import GPT, POSITIONS, GPTConfig
from chargpt.sampling.decoder import Decoder, pieces
from chargpt.sampling.graph_decoder import GraphDecoder
from chargpt.sampling.rules import Sampling

SHAPE = GPTConfig(n_layer=2, n_head=2, n_embd=16, block_size=12, bias=True)
RULES = (Sampling(temperature=0), Sampling(temperature=0.9, top_k=5), Sampling(top_p=0.8, min_p=0.02, repetition_penalty=1.5))


@pytest.mark.parametrize("overflow", ["refill", "exact"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_it_writes_the_text_of_the_plain_decoder(positions, overflow):
    torch.manual_seed(1)
    model = GPT(dataclasses.replace(SHAPE, positions=positions), 11).eval()
    for parameter in model.parameters():
        parameter.data *= 3  # so that texts differ
    for rows, sampling in ((1, RULES[0]), (3, RULES[1]), (2, RULES[2])):
        written = []
        for kind in (Decoder, GraphDecoder):
            generators = [torch.Generator().manual_seed(row) for row in range(rows)]
            prompt = torch.arange(rows * 3).view(rows, 3) % 11
            found = list(
                pieces(kind(model, rows, overflow=overflow), prompt, 40, sampling, generator=generators, never_sampled=[2])
            )
            written.append([torch.cat(parts) for parts in zip(*found)])
        (ids, log_probabilities), (own_ids, own_log_probabilities) = written
        assert torch.equal(ids, own_ids) and len(ids) == 40 and not (ids == 2).any()
        torch.testing.assert_close(log_probabilities, own_log_probabilities, rtol=1e-4, atol=1e-4)
