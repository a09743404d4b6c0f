"""Windows predict each id but the first once."""

import tracemalloc

import numpy as np
import pytest

from chargpt.text import windows
from chargpt.text.items import ItemMarks
from chargpt.text.windows import IGNORED, windows_of, windows_of_items


@pytest.mark.parametrize("length", [0, 1, 2, 9, 10, 129])
@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_every_id_but_the_first_is_predicted_once(length, rows, monkeypatch):
    monkeypatch.setattr(windows, "IDS_AT_ONCE", rows * 8)
    predicted: list[int] = []
    for inputs, targets in windows_of(np.arange(length, dtype=np.uint16), size=8, vocab_size=7):
        assert inputs.shape == targets.shape and inputs.size > 0 and len(inputs) <= rows
        assert np.array_equal(inputs + 1, targets)
        assert len(inputs[0]) == 8 or len(inputs) == 1  # only the last window is shorter
        predicted += targets.flatten().tolist()
    assert predicted == list(range(1, length))


def test_a_long_text_takes_no_memory():
    ids = np.broadcast_to(np.uint8(0), 2**17 + 1)  # one number that is repeated
    tracemalloc.start()
    try:
        assert sum(inputs.size for inputs, _ in windows_of(ids, size=8, vocab_size=windows.LOGITS_AT_ONCE)) == 2**17
        assert tracemalloc.get_traced_memory()[1] < 2**16
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("has_labels", [False, True])
@pytest.mark.parametrize("size", [1, 5, 8])
def test_an_item_that_fits_exactly_fills_its_window_and_each_id_is_predicted_once(size, has_labels):
    end, tab = 0, 1 if has_labels else None
    for length in range(1, 3 * size + 2):  # of an item with its end; a label and its tab are two more
        item = [2, 1] * has_labels + [3] * (length - 1) + [end]
        ids = np.array(item * 3, np.uint8)
        batches = windows_of_items(ids, ItemMarks(end, tab), size=size, vocab_size=9)
        rows = [(row, wanted) for batch in batches for row, wanted in zip(*batch)]
        assert len(rows) == 3 * -(-len(item) // size)
        assert sum((wanted != IGNORED).sum() for _, wanted in rows) == 3 * length
        if len(item) == size:
            assert all((wanted[2 * has_labels :] == item[2 * has_labels :]).all() and row[0] == end for row, wanted in rows)
