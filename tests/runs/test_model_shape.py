"""A model of a shape without weights, and the largest shape there may be."""

import pytest
import torch

from chargpt.model import GPT, POSITIONS, GPTConfig
from chargpt.runs.model_shape import check_size, parameter_count
from chargpt.runs.models import blank_model
from chargpt.terminal import UserError

KEYS_AND_VALUES = {"n_layer": 1000, "n_embd": 1, "block_size": 2**27}


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_blank_model_has_the_shape_and_leaves_the_random_state_alone(positions):
    config = GPTConfig(n_layer=2, n_head=2, n_embd=16, block_size=8, positions=positions)
    before = torch.get_rng_state()
    blank = blank_model(config, 11)
    assert torch.equal(torch.get_rng_state(), before)
    real = GPT(config, 11)
    assert {n: (t.shape, t.dtype) for n, t in blank.state_dict().items()} == {
        n: (t.shape, t.dtype) for n, t in real.state_dict().items()
    }
    blank.load_state_dict(real.state_dict())
    idx = torch.randint(11, (2, 8))
    assert torch.equal(blank(idx), real(idx))


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("bias", [False, True])
def test_the_parameters_of_a_shape_are_counted_without_a_model(positions, bias):
    config = GPTConfig(n_layer=2, n_head=2, n_embd=16, block_size=8, positions=positions, bias=bias)
    assert parameter_count(config, 11) == GPT(config, 11).parameter_count()


@pytest.mark.parametrize("shape", [{"n_layer": 1001}, {"n_embd": 2**15}, {"block_size": 2**27, "n_embd": 8}, KEYS_AND_VALUES])
def test_a_model_larger_than_any_run_is_refused(shape):
    with pytest.raises(UserError, match="at most"):
        check_size(GPTConfig(**{"n_layer": 1, "n_head": 1, "n_embd": 4, "block_size": 8, **shape}), 65)
    check_size(GPTConfig(n_layer=12, n_head=12, n_embd=768, block_size=8192), 65)
