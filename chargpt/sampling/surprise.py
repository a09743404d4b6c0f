"""The one scale on which terminals and pages show how surprised a model is by a character."""

import math
from bisect import bisect_right

import numpy as np

# Bits at which a deeper level of surprise begins. A character of n bits had the probability 1 / 2^n.
LEVELS = (0.5, 1, 2, 3, 4, 6, 8, 10)
# The level of a character that was not predicted: the first one of a text.
NOT_PREDICTED = -1


def level(bits: float) -> int:
    """The level of surprise of a character of this many bits: 0 to len(LEVELS), NOT_PREDICTED for nan."""
    return NOT_PREDICTED if math.isnan(bits) else bisect_right(LEVELS, bits)


def stretches(bits: np.ndarray) -> list[tuple[int, int, int]]:
    """The stretches of characters of one level of surprise: the level, the first character, and the one after the last."""
    if not len(bits):
        return []
    levels = np.where(np.isnan(bits), NOT_PREDICTED, np.searchsorted(LEVELS, np.nan_to_num(bits), side="right"))
    starts = [0, *(np.flatnonzero(np.diff(levels)) + 1).tolist()]
    return list(zip(levels[starts].tolist(), starts, [*starts[1:], len(levels)]))
