"""The n-gram model is a probability distribution, and finds regularities; copies are found within their window."""

import numpy as np
import pytest

from chargpt.text.ngram import copying, ngram_probabilities


def ngram_bits(train, val, *, vocab_size, order):
    return -np.log2(ngram_probabilities(train, val, vocab_size=vocab_size, order=order)).mean()


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


def repeating(distance: int) -> np.ndarray:
    """Random ids in which every group of `distance` is followed by a copy of itself."""
    groups = np.random.default_rng(1).integers(0, 16, (20_000 // distance, 1, distance))
    return np.repeat(groups, 2, axis=1).astype(np.uint16).ravel()


@pytest.mark.parametrize(("distance", "window", "finds"), [(40, 64, True), (40, 40, True), (40, 39, False), (100, 64, False)])
def test_copies_within_the_window_make_a_text_easier(distance, window, finds):
    ids = repeating(distance)
    ratio = copying(ids, np.full(len(ids), 1 / 16), window=window)
    assert 0.5 < ratio < 0.65 if finds else 0.97 < ratio <= 1


@pytest.mark.parametrize("vocab_size", [1, 2, 50])
@pytest.mark.parametrize("length", [3, 4, 30, 1000])
def test_copying_never_makes_a_text_harder(vocab_size, length):
    train, val = (
        np.random.default_rng(seed).integers(0, vocab_size, size).astype(np.uint8) for seed, size in ((0, 500), (1, length))
    )
    probability = ngram_probabilities(train, val, vocab_size=vocab_size, order=2)
    assert 0 < copying(val[2:], probability, window=128) <= 1
