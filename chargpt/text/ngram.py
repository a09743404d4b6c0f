"""A simple n-gram model: the loss that a trained network should beat."""

import numpy as np


def ngram_bits(train: np.ndarray, val: np.ndarray, *, vocab_size: int, order: int) -> float:
    """Bits per id of `val` under a model that counts in `train` which id follows each sequence of `order` ids.

    Shorter contexts are interpolated, with a weight that depends on how many different ids followed the context
    (Witten and Bell 1991). vocab_size ** (order + 1) must be below 2^63.
    """
    grams, counts = np.unique(_grams(train, order + 1, vocab_size), return_counts=True)
    probability = np.full(len(val) - order, 1 / vocab_size)
    wanted = _grams(val, order + 1, vocab_size)
    for length in range(1, order + 2):
        # `grams` is sorted, so grams with the same context are adjacent.
        suffixes, index = np.unique(grams % vocab_size**length, return_inverse=True)
        times = np.bincount(index, weights=counts)
        contexts, first = np.unique(suffixes // vocab_size, return_index=True)
        total = np.add.reduceat(times, first)
        kinds = np.diff(first, append=len(suffixes))
        gram = wanted % vocab_size**length
        seen = _lookup(suffixes, times, gram)
        in_context, followers = _lookup(contexts, total, gram // vocab_size), _lookup(contexts, kinds, gram // vocab_size)
        mixed = (seen + followers * probability) / np.maximum(in_context + followers, 1)
        probability = np.where(in_context > 0, mixed, probability)
    return float(-np.log2(probability).mean())


def _grams(ids: np.ndarray, length: int, vocab_size: int) -> np.ndarray:
    """Every sequence of `length` ids as a number in base vocab_size, the last id as its last digit."""
    number = np.zeros(len(ids) - length + 1, np.int64)
    for i in range(length):
        number = number * vocab_size + ids[i : len(ids) - length + 1 + i]
    return number


def _lookup(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The value of each wanted key, 0 for a key that is missing; `keys` ascend."""
    index = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    return np.where(keys[index] == wanted, values[index], 0)
