"""The lines of an encoded text in another order, which depends on their number alone: not on train.seed, so that all runs have
the same splits, and not on a random generator whose numbers another version of numpy may change."""

from collections.abc import Iterator

import numpy as np

BLOCK = 2**20  # ids that are looked at together
GAMMA = np.uint64(0x9E3779B97F4A7C15)  # the step from one state of SplitMix64 to the next


def shuffled_lines(ids: np.ndarray, newline: int) -> Iterator[np.ndarray]:
    """The ids of each line of `ids`, with its newline, in the new order. Empty lines stay where they are. Joined, the lines
    have as many ids as `ids`: the last one has a newline if the text has."""
    ids = np.asarray(ids)
    found = [start + np.flatnonzero(ids[start : start + BLOCK] == newline) for start in range(0, len(ids), BLOCK)]
    stops = np.concatenate([*found, [len(ids)]]).astype(np.int64)  # the last line is empty if the text ends with a newline
    starts = np.append(0, stops[:-1] + 1)
    order, filled, last = np.arange(len(stops)), np.flatnonzero(stops > starts), len(stops) - 1
    order[filled] = filled[random_order(len(filled))]
    for place, line in enumerate(order.tolist()):
        if last not in (line, place):
            yield ids[starts[line] : stops[line] + 1]
        else:  # the last line has no newline, and the one that comes there loses it
            yield np.append(ids[starts[line] : stops[line]], np.full(int(place != last), newline, ids.dtype))


def random_order(count: int) -> np.ndarray:
    """The numbers below `count` in the order of as many numbers of SplitMix64, int64."""
    return np.argsort(splitmix64(np.arange(count, dtype=np.uint64) * GAMMA), kind="stable")


def splitmix64(states: np.ndarray) -> np.ndarray:
    """The number after each state of SplitMix64 (Steele, Lea and Flood 2014): a bijection of uint64, without order."""
    x = states + GAMMA
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
