"""A model of a shape, the largest one there may be, and another run's weights, which arrive at the right characters."""

import dataclasses

import pytest
import torch
from helpers import SHAPE, random_weights, saved_state

from chargpt.errors import UserError
from chargpt.model import GPT, POSITIONS, GPTConfig
from chargpt.runs.beginning import start_from
from chargpt.runs.blank_model import blank_model
from chargpt.runs.checkpoint import load, publish
from chargpt.runs.checkpoint_schema import check_size, parameter_count
from chargpt.text.tokenizer import Tokenizer

CACHED = {"n_layer": 1000, "n_embd": 1, "block_size": 2**27}  # keys and values


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
    assert line.endswith(", so each begins as the one in brackets, if there is one: d; known to it, but not used here: a")


def test_a_new_character_begins_at_the_nearest_known_one(source):
    model, tokenizer = GPT(SHAPE, 6), Tokenizer("ABabc\u00e2", folded=False)
    line = start_from(source, model, tokenizer)
    rows, old = model.token_embedding.weight, source.weights["token_embedding.weight"]
    assert torch.equal(rows, old[[0, 1, 0, 1, 2, 0]]) and "if there is one: A (a), B (b), \u00e2 (a)" in line


def test_a_folded_character_begins_with_the_mean_of_all(source):
    model = GPT(SHAPE, 4)
    start_from(source, model, Tokenizer("abc", folded=True))
    assert torch.allclose(model.token_embedding.weight[-1], source.weights["token_embedding.weight"].mean(0))


def test_another_shape_or_another_kind_of_vocabulary_is_refused(source):
    with pytest.raises(UserError, match="size and form of this model are fixed; leave out .* model.dropout"):
        start_from(source, GPT(dataclasses.replace(SHAPE, n_layer=2), 3), Tokenizer("abc"))
    with pytest.raises(UserError, match="reads characters, .*; add data.vocabulary=characters"):
        start_from(source, GPT(SHAPE, 256), Tokenizer(None))
    start_from(source, GPT(dataclasses.replace(SHAPE, dropout=0.5), 3), Tokenizer("abc"))


@pytest.mark.parametrize("shape_of", [lambda size: (size, size), lambda size: (4, size), lambda size: (-(-size // 8) * 8, 4)])
def test_weights_that_follow_the_vocabulary_by_no_row_need_the_same_one(shape_of, source, tmp_path, monkeypatch):
    first = GPT.__init__

    def with_more(self: GPT, config: GPTConfig, vocab_size: int) -> None:
        first(self, config, vocab_size)
        self.more = torch.nn.Parameter(torch.ones(shape_of(vocab_size)))

    monkeypatch.setattr(GPT, "__init__", with_more)
    weights = {**source.weights, "more": torch.rand(shape_of(3))}
    source = load(publish(tmp_path, weights=weights, training={}, state=source.state))
    start_from(source, model := GPT(SHAPE, 3), Tokenizer("abc"))
    assert torch.equal(model.more, weights["more"])
    with pytest.raises(UserError, match="more of model.py has no row for each character .*; keep this one with --vocab-from"):
        start_from(source, GPT(SHAPE, 3), Tokenizer("bcd"))


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


@pytest.mark.parametrize("shape", [{"n_layer": 1001}, {"n_embd": 2**15}, {"block_size": 2**27, "n_embd": 8}, CACHED])
def test_a_model_larger_than_any_run_is_refused(shape):
    with pytest.raises(UserError, match="at most"):
        check_size(GPTConfig(**{"n_layer": 1, "n_head": 1, "n_embd": 4, "block_size": 8, **shape}), 65)
    check_size(GPTConfig(n_layer=12, n_head=12, n_embd=768, block_size=8192), 65)
