"""Another run's weights arrive at the right characters."""

import dataclasses

import pytest
import torch
from helpers import SHAPE, random_weights, saved_state

from chargpt.model import GPT
from chargpt.runs.checkpoint import load, publish
from chargpt.runs.start_from import start_from
from chargpt.terminal import UserError
from chargpt.text.tokenizer import Tokenizer


@pytest.fixture
def source(tmp_path):
    state = saved_state(1, tokenizer=Tokenizer("abc"))
    return load(publish(tmp_path, weights=random_weights(1, tokenizer=Tokenizer("abc")), training={}, state=state))


def test_embeddings_follow_their_characters(source):
    model = GPT(SHAPE, 3)
    before = model.token_embedding.weight.clone()
    line = start_from(source, model, Tokenizer("bcd"))
    rows, old = model.token_embedding.weight, source.weights["token_embedding.weight"]
    assert torch.equal(rows[0], old[1]) and torch.equal(rows[1], old[2]) and torch.equal(rows[2], before[2])
    assert torch.equal(model.blocks[0].mlp.up.weight, source.weights["blocks.0.mlp.up.weight"])
    assert "2 characters in common; 1 new: d; 1 dropped: a" in line


def test_another_shape_or_another_kind_of_vocabulary_is_refused(source):
    with pytest.raises(UserError, match="shape"):
        start_from(source, GPT(dataclasses.replace(SHAPE, n_layer=2), 3), Tokenizer("abc"))
    with pytest.raises(UserError, match="bytes"):
        start_from(source, GPT(SHAPE, 256), Tokenizer(None))
    start_from(source, GPT(dataclasses.replace(SHAPE, dropout=0.5), 3), Tokenizer("abc"))
