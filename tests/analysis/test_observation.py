"""An evaluation records how much its sample copies, and draws the heads when asked to, without changing the model."""

import numpy as np
import torch
from helpers import SHAPE

from chargpt.analysis import observation
from chargpt.analysis.observation import longest_copy, observe
from chargpt.config import TrainConfig
from chargpt.text.suffix_array import open_or_make_index
from model import GPT


def test_the_longest_copy_is_that_of_the_sample(corpus):
    copied = corpus.tokenizer.decode(corpus.train[200:260])
    unknown = "~" * 5
    assert longest_copy(corpus, unknown + copied + unknown) == 60
    assert longest_copy(corpus, "~") == 0 and longest_copy(corpus, "") is None


def test_a_long_text_has_the_number_only_with_an_index(corpus, monkeypatch):
    monkeypatch.setattr(observation, "MAX_INDEXED", 100)
    assert longest_copy(corpus, "the") is None
    open_or_make_index(corpus)
    assert longest_copy(corpus, "the") == 3


def test_a_cache_that_cannot_be_written_ends_nothing(corpus, monkeypatch):
    monkeypatch.setattr("chargpt.text.suffix_array.shutil.disk_usage", lambda path: type("usage", (), {"free": 0}))
    assert longest_copy(corpus, "the") is None


def test_heads_are_drawn_on_request_and_the_model_stays_as_it_was(corpus):
    model = GPT(SHAPE, corpus.tokenizer.vocab_size)
    before = torch.get_rng_state()
    assert observe(model, corpus, TrainConfig(), sample="") == {}
    seen = observe(model, corpus, TrainConfig(log_attention=True), sample="the sea")
    assert seen["novelty/longest_copy"] >= 4 and seen["attention"].dtype == np.uint8 and seen["attention"].ndim == 3
    assert model.training and torch.equal(torch.get_rng_state(), before)
