"""The certificate fails for every difference above its bound, and says how large the difference is."""

import dataclasses

import numpy as np
import pytest
import torch
from exchange_helpers import publish_model

from chargpt.config import DataConfig
from chargpt.exchange.certificate import GREEDY, ROUNDING, certify, reference_text, windows
from chargpt.sampling.loaded_model import load_model
from chargpt.terminal import UserError
from chargpt.text.corpus import load_corpus
from chargpt.text.tokenizer import Tokenizer


def logits_of(loaded, *, add=0.0, at=None, to=0):
    """The logits of the model, with `add` added to id `to` at position `at` of windows that are long enough."""

    @torch.inference_mode()
    def compute(ids: np.ndarray) -> np.ndarray:
        logits = loaded.model(torch.from_numpy(ids)).numpy().copy()
        if at is not None and logits.shape[1] > at:
            logits[-1, at, to] += add
        return logits

    return compute


def test_equal_logits_are_certified(make_model, make_options):
    loaded = make_model()
    certificate = certify(loaded, logits_of(loaded), make_options(loaded), target="itself")
    assert certificate.largest == 0 and certificate.greedy == min(GREEDY, 12)
    assert certificate.describe().startswith("itself: logits on 60 random characters differ by at most 0.0e+00 (bound 1.0e-04)")


@pytest.mark.parametrize("position", [0, 11, 23])
def test_one_wrong_logit_at_any_position_fails(make_model, make_options, position):
    loaded = make_model()
    small = certify(loaded, logits_of(loaded, add=5e-5, at=position), make_options(loaded), target="x")
    assert 4e-5 < small.largest < small.bound
    with pytest.raises(UserError, match="logits differ by"):
        certify(loaded, logits_of(loaded, add=5e-4, at=position), make_options(loaded), target="x")


def test_a_logit_that_is_no_number_fails(make_model, make_options):
    loaded = make_model()
    with pytest.raises(UserError, match="differ by inf"):
        certify(loaded, logits_of(loaded, add=float("nan"), at=3), make_options(loaded), target="x")


def test_another_vocabulary_fails(make_model, make_options):
    loaded = make_model()
    compute = logits_of(loaded)
    with pytest.raises(UserError, match="logits of shape"):
        certify(loaded, lambda ids: compute(ids)[..., :-1], make_options(loaded), target="x")


def test_a_target_that_writes_another_text_fails(make_model, make_options):
    """It computes the windows of the text exactly, but not what follows its own choice."""
    loaded = make_model()
    options, exact = make_options(loaded), logits_of(loaded)
    seen = {window.tobytes() for window in windows(options.ids, 24)}

    def compute(ids: np.ndarray) -> np.ndarray:
        return exact(ids) if ids.tobytes() in seen else -exact(ids)

    with pytest.raises(UserError, match="greedy text differs after 0 characters"):
        certify(loaded, compute, options, target="x")


def test_log_probabilities_are_compared_as_such(make_model, make_options):
    loaded = make_model()
    exact = logits_of(loaded)

    def compute(ids: np.ndarray) -> np.ndarray:
        return torch.from_numpy(exact(ids)).log_softmax(-1).numpy()

    assert certify(loaded, compute, make_options(loaded), target="x", log_probabilities=True).largest < ROUNDING
    with pytest.raises(UserError, match="differ"):
        certify(loaded, compute, make_options(loaded), target="x")


def test_the_windows_cover_the_text_and_a_batch(make_model, make_options):
    loaded = make_model()
    options = dataclasses.replace(make_options(loaded), ids=np.arange(60) % 5)
    cut = windows(options.ids, 24)
    assert np.array_equal(np.concatenate([window[0] for window in cut[:-1]]), options.ids)
    assert cut[-1].shape == (2, 12)


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
