"""Another run's weights arrive at the right characters."""

import dataclasses

import pytest
import torch
from helpers import SHAPE, random_weights, saved_state

from chargpt.model import GPT
from chargpt.runs.checkpoint import load, publish
from chargpt.runs.models import start_from
from chargpt.terminal import UserError
from chargpt.text.tokenizer import Tokenizer


@pytest.fixture
def source(tmp_path):
    state = saved_state(1, tokenizer=Tokenizer("abc"))
    return load(publish(tmp_path, weights=random_weights(1, tokenizer=Tokenizer("abc")), training={}, state=state))


def test_embeddings_follow_their_characters(source):
    model = GPT(SHAPE, 3)
    line = start_from(source, model, Tokenizer("bcd"))
    rows, old = model.token_embedding.weight, source.weights["token_embedding.weight"]
    assert torch.equal(rows[0], old[1]) and torch.equal(rows[1], old[2]) and torch.allclose(rows[2], old.mean(0))
    assert torch.equal(model.blocks[0].mlp.up.weight, source.weights["blocks.0.mlp.up.weight"])
    assert "2 characters in common; 1 new: d; 1 dropped: a" in line


def test_a_new_character_begins_at_the_nearest_known_one(source):
    model, tokenizer = GPT(SHAPE, 6), Tokenizer("ABabc\u00e2", folded=False)
    line = start_from(source, model, tokenizer)
    rows, old = model.token_embedding.weight, source.weights["token_embedding.weight"]
    assert torch.equal(rows, old[[0, 1, 0, 1, 2, 0]]) and "3 new: A at a, B at b, \u00e2 at a" in line


def test_a_folded_character_begins_with_the_mean_of_all(source):
    model = GPT(SHAPE, 4)
    start_from(source, model, Tokenizer("abc", folded=True))
    assert torch.allclose(model.token_embedding.weight[-1], source.weights["token_embedding.weight"].mean(0))


def test_another_shape_or_another_kind_of_vocabulary_is_refused(source):
    with pytest.raises(UserError, match="shape"):
        start_from(source, GPT(dataclasses.replace(SHAPE, n_layer=2), 3), Tokenizer("abc"))
    with pytest.raises(UserError, match="bytes"):
        start_from(source, GPT(SHAPE, 256), Tokenizer(None))
    start_from(source, GPT(dataclasses.replace(SHAPE, dropout=0.5), 3), Tokenizer("abc"))
