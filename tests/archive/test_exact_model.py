"""The reference engine: close to the model, and the same to the bit in any batch and in any number of steps."""

import pytest
import torch
from model_helpers import SHAPES, V, ids_for, new_model

from chargpt.archive.exact_model import ExactWeights, TorchEngine, frequencies


@pytest.mark.parametrize("config", SHAPES, ids=lambda config: f"{config.positions}-{config.n_embd}")
def test_the_frequencies_are_the_models_probabilities(config):
    model, ids = new_model(config), ids_for(config)
    engine = TorchEngine(ExactWeights(model, V))
    found = engine.read(ids, start=0, wanted=config.block_size).double()
    found = found / found.sum(dim=-1, keepdim=True)
    torch.testing.assert_close(found, model(ids).double().softmax(-1).detach(), rtol=0, atol=2e-5)


@pytest.mark.parametrize("config", SHAPES, ids=lambda config: f"{config.positions}-{config.n_embd}")
def test_batches_and_steps_change_no_bit(config):
    ids, weights = ids_for(config), ExactWeights(new_model(config), V - 1)
    size = config.block_size
    whole = TorchEngine(weights).read(ids, start=0, wanted=size)
    assert whole.shape == (5, size, V - 1) and whole.min() >= 1
    alone = TorchEngine(weights)
    assert torch.equal(alone.read(ids[2:3], start=0, wanted=size), whole[2:3])
    engine = TorchEngine(weights)
    parts = [engine.read(ids[:, :4], start=0, wanted=min(4, size))]
    parts += [engine.read(ids[:, t : t + 1], start=t, wanted=1) for t in range(4, size - 2)]
    parts += [engine.read(ids[:, size - 2 :], start=size - 2, wanted=2)] if size > 4 else []
    assert torch.equal(torch.cat(parts, dim=1), whole)


def test_threads_change_no_bit():
    weights, ids = ExactWeights(new_model(SHAPES[0]), V), ids_for(SHAPES[0], 40)
    one = TorchEngine(weights).read(ids, start=0, wanted=12)
    torch.set_num_threads(2)
    assert torch.equal(TorchEngine(weights).read(ids, start=0, wanted=12), one)


def test_every_symbol_has_a_frequency():
    found = frequencies(torch.tensor([[0.0, -1e9, 5.0]], dtype=torch.float64))
    assert found.min() >= 1 and found.max() == 2**24 + 1
