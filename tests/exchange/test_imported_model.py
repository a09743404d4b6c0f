"""What a reader returns: shapes within bounds, and the positions and biases that the weights show."""

import pytest
import torch

from chargpt.exchange.imported_model import checked_shape, imported
from chargpt.terminal import UserError
from chargpt.text.tokenizer import Tokenizer
from model import GPT, GPTConfig


@pytest.mark.parametrize("value", [0, -1, 2**40, True, "2", None, 1.0])
def test_only_sensible_whole_numbers_make_a_shape(value):
    fields = {"n_layer": 1, "n_head": 1, "n_embd": 8, "block_size": 8}
    assert checked_shape("x", vocab_size=5, **fields) == GPTConfig(**fields)
    with pytest.raises(UserError, match="n_layer is"):
        checked_shape("x", vocab_size=5, **{**fields, "n_layer": value})


def test_sinusoidal_positions_and_missing_biases_are_recognised():
    shape = GPTConfig(n_layer=1, n_head=1, n_embd=8, block_size=8)
    weights = GPT(shape, 3).state_dict()
    table = GPT(GPTConfig(n_layer=1, n_head=1, n_embd=8, block_size=8, positions="sinusoidal"), 3).position_table(8)
    plain = imported("x", shape, Tokenizer("abc"), dict(weights), ids=[2, 0, 1])
    assert (plain.shape.positions, plain.shape.bias) == ("learned", False)
    assert torch.equal(plain.weights["token_embedding.weight"], weights["token_embedding.weight"][[2, 0, 1]])
    sinusoidal = imported("x", shape, Tokenizer("abc"), {**weights, "position_embedding.weight": table}, ids=[0, 1, 2])
    assert sinusoidal.shape.positions == "sinusoidal" and "position_embedding.weight" not in sinusoidal.weights
