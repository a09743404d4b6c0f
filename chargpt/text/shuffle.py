"""The lines of an encoded text in another order, which is always the same for the same number of lines.

The order depends on nothing but that number: not on train.seed, so that runs with different seeds have the same training and
validation split, and not on a random generator whose numbers another version of numpy may change.
"""

from collections.abc import Iterator

import numpy as np

BLOCK = 2**20  # ids that are looked at or written together
GAMMA = np.uint64(0x9E3779B97F4A7C15)  # the step from one state of SplitMix64 to the next


def shuffled_lines(ids: np.ndarray, newline: int) -> Iterator[np.ndarray]:
    """The ids of the lines of `ids` in the new order, each with its newline, in pieces of whole lines or of BLOCK ids.

    Empty lines stay where they are. Joined, the pieces have as many ids as `ids`: the last line has a newline if the text has.
    """
    starts, lengths = _lines(ids, newline)
    if not len(starts):
        return
    order = np.arange(len(starts))
    filled = np.flatnonzero(lengths)
    order[filled] = filled[np.argsort(random_numbers(len(filled)), kind="stable")]
    starts, lengths = starts[order], lengths[order]
    ends = np.cumsum(lengths + 1)  # in the new text
    is_complete, first = ids[-1] == newline, 0
    while first < len(starts):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + BLOCK, side="right")))
        if last == first + 1:
            yield from _long_line(ids, int(starts[first]), int(lengths[first]))
            piece = np.array([newline], ids.dtype)
        else:
            sizes = lengths[first:last] + 1
            offsets = ends[first:last] - before
            places = np.arange(offsets[-1]) + np.repeat(starts[first:last] - offsets + sizes, sizes)
            piece = np.asarray(ids[np.minimum(places, len(ids) - 1)])
            piece[offsets - 1] = newline
        yield piece if is_complete or last < len(starts) else piece[:-1]
        first = last


def _lines(ids: np.ndarray, newline: int) -> tuple[np.ndarray, np.ndarray]:
    """The start and the length of each line, without its newline, int64. A newline at the end begins no further line."""
    blocks = range(0, len(ids), BLOCK)
    ends = [start + np.flatnonzero(ids[start : start + BLOCK] == newline) for start in blocks]
    last = [np.array([len(ids)])] if len(ids) and ids[-1] != newline else []
    stops = np.concatenate([np.empty(0, np.int64), *ends, *last]).astype(np.int64)
    starts = np.concatenate([np.zeros(min(1, len(stops)), np.int64), stops[:-1] + 1])
    return starts, stops - starts


def _long_line(ids: np.ndarray, start: int, length: int) -> Iterator[np.ndarray]:
    for at in range(start, start + length, BLOCK):
        yield np.asarray(ids[at : min(at + BLOCK, start + length)])


def random_numbers(count: int) -> np.ndarray:
    """`count` numbers of SplitMix64, uint64."""
    return splitmix64(np.arange(count, dtype=np.uint64) * GAMMA)


def splitmix64(states: np.ndarray) -> np.ndarray:
    """The number after each state of SplitMix64 (Steele, Lea and Flood 2014), a bijection of uint64.

    Neighbouring states give unrelated numbers.
    """
    x = states + GAMMA
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
