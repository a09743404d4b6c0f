"""The engine of a page, under Node.js, computes what PyTorch computes."""

import numpy as np
import pytest
from exchange_helpers import EACH_KIND
from page_helpers import TEXT, VOCABULARIES, greedy, logits_of, new_model, packed, page_of, run_engine
from scripts import needs_node

from chargpt.text.tokenizer import Tokenizer


@pytest.fixture
def page(tmp_path):
    """A function that writes a page and returns its path."""

    def write(loaded, weights: str = "float16"):
        page_of(loaded, tmp_path / "page.html", weights=weights)
        return tmp_path / "page.html"

    return write


@needs_node
@EACH_KIND
def test_logits_and_greedy_text_are_those_of_pytorch(tmp_path, page, positions, bias, vocabulary):
    loaded = new_model(tmp_path, VOCABULARIES[vocabulary], positions=positions, bias=bias)
    ids = loaded.tokenizer.encode_known(TEXT)[0].tolist()
    windows = [ids[:21], ids[21:28], ids[28:29]]  # a full context, groups and single positions, one position
    logits, written = run_engine(page(loaded), windows, vocab_size=loaded.tokenizer.vocab_size, length=60)
    same_weights = packed(loaded.model, "float16")
    np.testing.assert_allclose(logits, logits_of(same_weights, windows), atol=2e-5)
    np.testing.assert_allclose(logits, logits_of(loaded.model, windows), atol=1e-2)
    assert np.ptp(logits, axis=1).min() > 1  # the logits of these models are not all alike
    assert written == greedy(loaded, same_weights, windows[0], 60)


@needs_node
@pytest.mark.parametrize(
    "shape", [{}, {"n_embd": 10, "n_head": 2, "block_size": 1}, {"n_embd": 32, "n_head": 1, "block_size": 40}]
)
@pytest.mark.parametrize("engine", ["WebAssembly", "JavaScript"])
def test_both_kernels_compute_models_of_any_shape(tmp_path, page, engine, shape):
    loaded = new_model(tmp_path, Tokenizer("ab"), bias=True, **shape)
    windows = [([0, 1, 1, 0, 1] * 10)[: loaded.model.config.block_size]]
    logits, written = run_engine(page(loaded), windows, vocab_size=2, length=30, engine=engine)
    np.testing.assert_allclose(logits, logits_of(packed(loaded.model, "float16"), windows), atol=2e-5)
    assert len(written) == 30


@needs_node
def test_int8_weights_are_computed_as_they_are_packed(tmp_path, page):
    loaded = new_model(tmp_path, VOCABULARIES["characters"], bias=True)
    windows = [loaded.tokenizer.encode(TEXT)[:21].tolist()]
    logits, _ = run_engine(page(loaded, "int8"), windows, vocab_size=loaded.tokenizer.vocab_size, length=0)
    np.testing.assert_allclose(logits, logits_of(packed(loaded.model, "int8"), windows), atol=2e-5)
    assert np.abs(logits - logits_of(loaded.model, windows)).max() > 1e-3  # int8 is not float16


@needs_node
def test_the_smallest_numbers_of_float16_are_read(tmp_path, page):
    """Half of the embedding is below 2**-14, the smallest float16 with an exponent of its own."""
    loaded = new_model(tmp_path, Tokenizer("ab"), bias=True)
    embedding = loaded.model.token_embedding.weight.data
    embedding.mul_(5e-5 / embedding.abs().median())
    logits, _ = run_engine(page(loaded), [[0, 1, 1, 0]], vocab_size=2, length=0)
    np.testing.assert_allclose(logits, logits_of(packed(loaded.model, "float16"), [[0, 1, 1, 0]]), rtol=1e-4, atol=1e-8)
