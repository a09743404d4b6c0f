"""A classifier on n-grams learns labels from letters, and knows only the labels that it is asked for."""

import random

import numpy as np
import pytest

from chargpt.analysis.ngrams import NgramClassifier
from chargpt.text.item_stream import Item


@pytest.mark.parametrize("seed", range(3))
def test_labels_with_words_of_their_own_are_told_apart_whatever_their_frequencies(seed):
    draw = random.Random(seed)
    words = {label: ["".join(draw.choices("abcdef", k=4)) for _ in range(9)] for label in "xyz"}

    def items(count: int) -> list[Item]:
        labels = draw.choices("xyz", weights=[6, 3, 1], k=count)
        return [Item(label, " ".join(draw.choices(words[label], k=6))) for label in labels]

    new, classifier = items(100), NgramClassifier([*items(400), Item("other", "ab")], ["x", "y", "z"])
    found = classifier.log_likelihoods([item.text for item in new])
    assert found.shape == (100, 3) and np.isfinite(found).all()
    assert np.mean(["xyz"[best] == item.label for best, item in zip(found.argmax(axis=1), new)]) > 0.95
    assert np.ptp(classifier.log_likelihoods([""])) < 1  # of an empty item, hardly anything is known
