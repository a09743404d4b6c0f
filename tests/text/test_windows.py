"""Windows predict each id but the first once."""

import tracemalloc
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chargpt.text import windows
from chargpt.text.item_stream import ItemMarks
from chargpt.text.windows import IDS_AT_ONCE, IGNORED, LOGITS_AT_ONCE, ids_at_once, windows_of, windows_of_items


@given(st.integers(1, 2 * LOGITS_AT_ONCE))
def test_a_batch_is_as_large_as_its_limits_allow(vocab_size):
    most = ids_at_once(vocab_size)
    assert most == 1 or (most * vocab_size <= LOGITS_AT_ONCE and most <= IDS_AT_ONCE)
    assert (most + 1) * vocab_size > LOGITS_AT_ONCE or most == IDS_AT_ONCE


@given(length=st.integers(0, 200), size=st.integers(1, 12), most=st.integers(1, 60))
def test_every_id_but_the_first_is_predicted_once_in_full_batches(length, size, most):
    with patch.object(windows, "IDS_AT_ONCE", most):
        batches = list(windows_of(np.arange(length, dtype=np.uint16), size=size, vocab_size=7))
    predicted = np.concatenate([np.zeros(0, int), *(targets.ravel() for _, targets in batches)])
    assert predicted.tolist() == list(range(1, length)) and all(np.array_equal(ids + 1, targets) for ids, targets in batches)
    rows, rest = max(1, most // size), max(0, length - 1) % size
    full = max(0, length - 1) // size  # windows
    shapes = [(rows, size)] * (full // rows) + [(full % rows, size)] * (full % rows > 0) + [(1, rest)] * (rest > 0)
    assert [ids.shape for ids, _ in batches] == shapes


def test_a_long_text_takes_no_memory():
    ids = np.broadcast_to(np.uint8(0), 2**17 + 1)  # one number that is repeated
    tracemalloc.start()
    try:
        assert sum(inputs.size for inputs, _ in windows_of(ids, size=8, vocab_size=LOGITS_AT_ONCE)) == 2**17
        assert tracemalloc.get_traced_memory()[1] < 2**16
    finally:
        tracemalloc.stop()


@given(lengths=st.lists(st.integers(1, 20), min_size=1, max_size=8), size=st.integers(1, 9), has_labels=st.booleans())
def test_each_item_is_predicted_once_from_its_beginning_without_its_label(lengths, size, has_labels):
    items = [[2, 1] * has_labels + [3 + n] * (length - 1) + [0] for n, length in enumerate(lengths)]  # 0: end, 1: tab
    marks = ItemMarks(0, 1 if has_labels else None)
    with patch.object(windows, "IDS_AT_ONCE", 20):
        batches = windows_of_items(np.array(sum(items, []), np.uint8), marks, size=size, vocab_size=9)
    assert all(ids.size <= max(20, size) for ids, _ in batches) and all(ids.size + ids.shape[1] > 20 for ids, _ in batches[:-1])
    expected = []
    for item in items:
        counted = [IGNORED] * 2 * has_labels + item[2 * has_labels :]
        parts = [slice(i, min(i + size, len(item))) for i in range(0, len(item), size)]
        expected += [([0, *item][part], counted[part]) for part in parts]
    rows = [(row.tolist(), wanted.tolist()) for batch in batches for row, wanted in zip(*batch)]
    assert len(rows) == len(expected)
    for ids, counted in expected:  # a row is a window, filled up with what is not predicted
        rows.remove(
            next(
                (row, wanted)
                for row, wanted in rows
                if row[: len(ids)] == ids and wanted == counted + [IGNORED] * (len(row) - len(ids))
            )
        )
