"""The windows in which a model predicts a text: each id but the first is predicted once, always in the same order and batches.

The validation loss, the loss of each character and the breakdown of a loss all read these windows.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from chargpt.text.items import ItemMarks

LOGITS_AT_ONCE = 2**22  # in a batch: limits the memory for any vocabulary
IDS_AT_ONCE = 2**14  # likewise
IGNORED = -100  # the target of a position that is not predicted, as torch's cross_entropy has it


class Windows(NamedTuple):
    """A batch of windows. Row b reads inputs[b] and predicts targets[b], the ids that follow."""

    inputs: np.ndarray  # (B, T), int64
    targets: np.ndarray  # (B, T), int64
    known: int  # this many predictions of the first row were made in the batch before


def ids_at_once(vocab_size: int) -> int:
    """The ids of a batch that fit into memory, at most IDS_AT_ONCE."""
    return max(1, min(LOGITS_AT_ONCE // vocab_size, IDS_AT_ONCE))


def windows_of(pieces: Iterable[np.ndarray], *, size: int, stride: int, vocab_size: int) -> Iterator[Windows]:
    """The windows of a text whose ids come in consecutive `pieces`, in batches; memory does not depend on the text's length. A
    window of `size` ids begins every `stride` ids. It predicts the ids that no window before it has predicted: the first one
    all of its ids, each other one the last `stride`, after at least size - stride ids of context. With a stride of `size`, each
    window begins without context: these are the windows of the validation loss. The last window may be shorter."""
    rows = max(1, ids_at_once(vocab_size) // size)
    ids, known = np.empty(0, np.int64), 0  # the ids from the next window on, and how many of its predictions are known
    for piece in pieces:
        ids = np.concatenate((ids, piece), dtype=np.int64, casting="unsafe")
        while len(ids) >= (rows - 1) * stride + size + 1:
            yield _batch(ids[: (rows - 1) * stride + size + 1], size, stride, known)
            ids, known = ids[rows * stride :], size - stride
    if len(ids) > size:
        batch = _batch(ids, size, stride, known)
        yield batch
        ids, known = ids[len(batch.inputs) * stride :], size - stride
    if len(ids) - 1 > known:
        yield _batch(ids, len(ids) - 1, stride, known)


def windows_of_items(ids: np.ndarray, marks: ItemMarks, *, size: int, vocab_size: int) -> list[Windows]:
    """The windows in which a model predicts each item of `ids` alone, after the end of an item; in batches of like lengths. An
    item longer than `size` goes on in windows without the context of those before. Targets that do not count are IGNORED:
    labels, and what fills a row up. An item at the end that is not complete is left out, unless it is the only one."""
    starts, stops = marks.bounds(ids)
    if not len(stops):
        starts, stops = np.zeros(1, np.int64), np.array([len(ids) - 1])
    stream = np.concatenate(([marks.end], ids))  # so that an input comes before each id
    counted = np.concatenate(([False], marks.counted(ids)))
    lengths = stops + 1 - starts
    pieces = -(-lengths // size)  # windows of each item
    number = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)  # of a window in its item
    firsts = np.repeat(starts, pieces) + number * size
    sizes = np.minimum(np.repeat(lengths, pieces) - number * size, size)
    order, batches = np.argsort(sizes, kind="stable"), list[Windows]()
    while len(order):
        longest = int(sizes[order[-1]])
        chosen = order[-max(1, ids_at_once(vocab_size) // longest) :]
        order = order[: len(order) - len(chosen)]
        inputs, targets = windows_at(stream, firsts[chosen], sizes[chosen], length=longest, counted=counted)
        batches.append(Windows(np.ascontiguousarray(inputs), targets, 0))
    return batches


def windows_at(
    stream: np.ndarray, starts: np.ndarray, sizes: np.ndarray, *, length: int, counted: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Windows of `stream`, which begin at `starts` and predict `sizes` ids each: inputs and targets, (B, length) int64. The
    target of an id that is not `counted`, or after the last one of a window, is IGNORED. None counts all ids."""
    places = np.minimum(starts[:, None] + np.arange(length + 1), len(stream) - 1)
    ids, predicted = stream[places].astype(np.int64), np.arange(length) < sizes[:, None]
    if counted is not None:
        predicted &= counted[places[:, 1:]]
    return ids[:, :-1], np.where(predicted, ids[:, 1:], IGNORED)


def _batch(ids: np.ndarray, size: int, stride: int, known: int) -> Windows:
    """Every whole window of `ids`."""
    windows = np.lib.stride_tricks.sliding_window_view(ids, size + 1)[::stride]
    return Windows(windows[:, :-1].copy(), windows[:, 1:].copy(), known)
