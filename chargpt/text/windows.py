"""The windows of the validation loss: each id but the first is predicted once, always in the same order and batches."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # of a list of items
    from chargpt.text.item_stream import ItemMarks

LOGITS_AT_ONCE = 2**22  # in a batch: limits the memory for any vocabulary
IDS_AT_ONCE = 2**14  # likewise
IGNORED = -100  # the target of a position that is not predicted, as torch's cross_entropy has it

Windows = tuple[np.ndarray, np.ndarray]  # a batch: the ids that are read, (B, T), and for each of them the one that follows


def ids_at_once(vocab_size: int) -> int:
    """The ids of a batch that fit into memory, at most IDS_AT_ONCE."""
    return max(1, min(LOGITS_AT_ONCE // vocab_size, IDS_AT_ONCE))


def windows_of(ids: np.ndarray, *, size: int, vocab_size: int) -> Iterator[Windows]:
    """The windows of a text, each of `size` ids without the context of those before, in batches; the last may be shorter."""
    most = max(1, ids_at_once(vocab_size) // size) * size
    for start in range(0, len(ids) - 1, most):
        end = min(start + most, len(ids) - 1)
        whole = end - (end - start) % size  # the windows up to here have the full size
        for first, last, length in ((start, whole, size), (whole, end, end - whole)):
            if first < last:
                yield ids[first:last].reshape(-1, length), ids[first + 1 : last + 1].reshape(-1, length)


def windows_of_items(ids: np.ndarray, marks: "ItemMarks", *, size: int, vocab_size: int) -> list[Windows]:
    """The windows in which a model predicts each item of `ids` alone, after the end of an item; in batches of like lengths. An
    item longer than `size` goes on in windows without the context of those before. Targets that do not count are IGNORED:
    labels, and what fills a row up. An item at the end that is not complete is left out, unless it is the only one."""
    stream, counted = np.append(marks.end, ids), np.append(False, marks.counted(ids))  # an input comes before each id
    starts, stops = marks.bounds(ids)
    windows = (stops - starts) // size + 1  # of each item
    number = np.arange(windows.sum()) - np.repeat(np.cumsum(windows) - windows, windows)  # of a window in its item
    firsts = np.repeat(starts, windows) + number * size
    sizes = np.minimum(np.repeat(stops + 1, windows) - firsts, size)
    batches = _batches(sizes, vocab_size)
    return [windows_at(stream, firsts[one], sizes[one], length=int(sizes[one[-1]]), counted=counted) for one in batches]


def _batches(sizes: np.ndarray, vocab_size: int) -> Iterator[np.ndarray]:
    """The numbers of windows of these sizes, in batches of like sizes, the largest first."""
    left = np.argsort(sizes, kind="stable")
    while len(left):
        left, batch = np.split(left, [-max(1, ids_at_once(vocab_size) // int(sizes[left[-1]]))])
        yield batch


def windows_at(
    stream: np.ndarray, starts: np.ndarray, sizes: np.ndarray, *, length: int, counted: np.ndarray | None
) -> Windows:
    """Windows of `stream`, which begin at `starts` and predict `sizes` ids each: inputs and targets, (B, length) int64. The
    target of an id that is not `counted`, or after the last one of a window, is IGNORED. None counts all ids."""
    places = np.minimum(starts[:, None] + np.arange(length + 1), len(stream) - 1)
    ids, predicted = stream[places].astype(np.int64), np.arange(length) < sizes[:, None]
    if counted is not None:
        predicted &= counted[places[:, 1:]]
    return ids[:, :-1], np.where(predicted, ids[:, 1:], IGNORED)
