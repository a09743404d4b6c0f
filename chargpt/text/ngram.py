"""A simple n-gram model: the loss that a network should beat. And copying: how much a text repeats itself in a few lines."""

import numpy as np

HIGHEST_ORDER = 3
SHORTEST_COPY = 4  # ids that must agree before the next one is copied
LONGEST_COPY = 20  # ids; longer matches count as this long
ROUNDS = 20  # of expectation maximisation


def copying(ids: np.ndarray, probability: np.ndarray, *, window: int) -> float:
    """The loss on `ids` of a model that also copies, divided by that of the model that gives them `probability`; at most 1.

    What is copied is the id after the longest match among the last `window` ids. How likely that is depends on the length of
    the match alone, and is chosen for these ids.
    """
    length, following = _longest_matches(ids, window=window)
    length, hit = np.minimum(length, LONGEST_COPY), following == ids
    times = np.bincount(length, minlength=LONGEST_COPY + 1)
    share = np.where(np.arange(LONGEST_COPY + 1) < SHORTEST_COPY, 0.0, 0.5)  # of copying, for each length of a match
    for _ in range(ROUNDS):
        copies = share[length] * hit
        by_copying = copies / (copies + (1 - share[length]) * probability)
        share = np.bincount(length, by_copying, minlength=len(share)) / (times + 1)
    mixed = share[length] * hit + (1 - share[length]) * probability
    without = np.log(probability).sum()
    return min(1.0, float(np.log(mixed).sum() / without)) if without else 1.0  # the shares are near the best ones


def _longest_matches(ids: np.ndarray, *, window: int) -> tuple[np.ndarray, np.ndarray]:
    """For each place, how many of the ids before it equal those before an earlier place, at most `window` ids back, and the id
    at that place: of the longest such match, and of the nearest of several."""
    length, following = np.zeros(len(ids), np.int64), np.zeros_like(ids)
    place = np.arange(len(ids))
    for distance in range(min(window, len(ids) - 1), 0, -1):
        equal = ids[distance:] == ids[:-distance]
        last_other = np.maximum.accumulate(np.where(equal, -1, place[: len(equal)]))
        matching = (place[: len(equal)] - last_other)[:-1]  # ids up to each place
        better = np.flatnonzero(matching >= np.maximum(length[distance + 1 :], 1))
        length[better + distance + 1] = matching[better]
        following[better + distance + 1] = ids[better + 1]
    return length, following


def ngram_probabilities(train: np.ndarray, val: np.ndarray, *, vocab_size: int, order: int = HIGHEST_ORDER) -> np.ndarray:
    """The probability of each id of `val` but the first `order` ones, by how often it follows those before it in `train`.

    Shorter contexts are interpolated, with a weight that depends on how many different ids followed the context
    (Witten and Bell 1991). The order is lower for a large vocabulary (vocab_size ** (order + 1) < 2^63) and for a few ids.
    """
    order = min(order if vocab_size ** (order + 1) < 2**63 else 2, len(train) - 1, len(val) - 1)
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
    return probability


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
