"""The n-gram model is a probability distribution, and finds regularities."""

import numpy as np
import pytest

from chargpt.text.ngram import ngram_bits


def test_the_ngram_is_a_distribution():
    """Over all that could come next, the probabilities of a context sum to one: seen contexts and unseen ones."""
    train = np.random.default_rng(0).integers(0, 4, 200).astype(np.uint8)
    for context in ([0, 1, 2], [3, 3, 3], [2, 0, 2]):
        bits = [ngram_bits(train, np.uint8([*context, c]), vocab_size=5, order=3) for c in range(5)]
        assert sum(2**-b for b in bits) == pytest.approx(1)


def test_the_ngram_finds_what_there_is_to_find():
    noise = np.random.default_rng(0).integers(0, 16, 200_000).astype(np.uint16)
    assert ngram_bits(noise[:100_000], noise[100_000:], vocab_size=16, order=2) == pytest.approx(4, abs=0.1)
    cycle = np.tile(np.arange(7, dtype=np.uint8), 1000)
    assert ngram_bits(cycle, cycle, vocab_size=7, order=3) < 0.01
