"""The text that an export is compared on: the run's own validation text if it is in the cache, otherwise the model's own."""

import dataclasses

import numpy as np
from exchange_helpers import publish_model

from chargpt.config import DataConfig
from chargpt.exchange.reference_text import reference_text
from chargpt.sampling.loaded_model import load_model
from chargpt.text.corpus import load_corpus
from chargpt.text.tokenizer import Tokenizer


def test_it_is_the_validation_text(tmp_path, text):
    corpus = load_corpus([str(text)], DataConfig(), root=tmp_path, block_size=8)
    loaded, _ = load_model(str(publish_model(tmp_path / "run", tokenizer=corpus.tokenizer)), tmp_path, device="cpu")
    loaded = dataclasses.replace(loaded, fingerprint=corpus.fingerprint)
    ids, origin = reference_text(loaded, root=tmp_path, length=300)
    assert (
        np.array_equal(ids, corpus.val[:300])
        and ids.dtype == np.int64
        and origin == "the first 300 characters of the validation text"
    )
    other = dataclasses.replace(loaded, tokenizer=Tokenizer("abc"))
    assert "validation" not in reference_text(other, root=tmp_path, length=10)[1]


def test_without_a_cache_the_model_writes_one(tmp_path, make_model):
    loaded = make_model(tokenizer=Tokenizer("\nab", folded=True))
    ids, origin = reference_text(loaded, root=tmp_path, length=1000)
    assert len(ids) == 48 and ids.max() < 3 and "that the model wrote" in origin
    assert np.array_equal(ids, reference_text(loaded, root=tmp_path, length=1000)[0])
