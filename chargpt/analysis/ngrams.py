"""A naive Bayes classifier on the n-grams of characters, which tells labels apart where a model has learned to write them."""

import itertools
import zlib
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from chargpt.text.item_stream import Item

SIZES, BUCKETS, ADDED = (2, 3, 4), 2**16, 0.5  # of the n-grams, of the table of their hashes, and to each count
MOST_LABELS, MOST_READ = 200, 3_000_000  # that it tells apart, and characters of the items that it learns from, at most


class NgramClassifier:
    """Has learned the labels of `items`."""

    def __init__(self, items: Sequence[Item], labels: Sequence[str]) -> None:
        counts, number = np.zeros((BUCKETS, len(labels))), {label: i for i, label in enumerate(labels)}
        until = bisect_right([*itertools.accumulate(len(item.text) for item in items)], MOST_READ)
        for item in items[: max(1, until)]:
            if item.label in number:
                np.add.at(counts[:, number[item.label]], _buckets(item.text), 1.0)
        seen = counts.any(axis=1, keepdims=True)
        smooth = counts + ADDED * seen
        self._table = np.log(np.where(seen, smooth, 1) / np.where(seen, smooth.sum(axis=0), 1))

    def log_likelihoods(self, texts: Sequence[str]) -> np.ndarray:
        """The logarithm of the probability of each text under each label, (texts, labels): the mean of those of the sizes."""
        return np.stack([self._table[_buckets(text)].sum(axis=0) for text in texts]) / len(SIZES)


def _buckets(text: str) -> np.ndarray:
    text = f"\n{text.casefold()}\n"
    return np.array([zlib.crc32(text[i : i + n].encode()) % BUCKETS for n in SIZES for i in range(len(text) - n + 1)], np.int64)
