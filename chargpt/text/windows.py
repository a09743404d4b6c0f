"""The windows in which a model predicts a text: each id but the first is predicted once, always in the same order and batches.

The validation loss, the loss of each character and the breakdown of a loss all read these windows.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

# Logits in a batch: limits the memory for any vocabulary.
LOGITS_AT_ONCE = 2**22
# Ids in a batch.
IDS_AT_ONCE = 2**14


class Windows(NamedTuple):
    """A batch of windows. Row b reads inputs[b] and predicts targets[b], the ids that follow."""

    inputs: np.ndarray  # (B, T), int64
    targets: np.ndarray  # (B, T), int64
    known: int  # this many predictions of the first row were made in the batch before


def ids_at_once(vocab_size: int) -> int:
    """The ids of a batch that fit into memory, at most IDS_AT_ONCE."""
    return max(1, min(LOGITS_AT_ONCE // vocab_size, IDS_AT_ONCE))


def windows_of(pieces: Iterable[np.ndarray], *, size: int, stride: int, vocab_size: int) -> Iterator[Windows]:
    """The windows of a text whose ids come in consecutive `pieces`, in batches; memory does not depend on the text's length.

    A window of `size` ids begins every `stride` ids. It predicts the ids that no window before it has predicted: the first
    one all of its ids, each other one the last `stride`, after at least size - stride ids of context. With a stride of `size`,
    each window begins without context: these are the windows of the validation loss. The last window may be shorter.
    """
    assert 1 <= stride <= size, (stride, size)
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


def _batch(ids: np.ndarray, size: int, stride: int, known: int) -> Windows:
    """Every whole window of `ids`."""
    windows = np.lib.stride_tricks.sliding_window_view(ids, size + 1)[::stride]
    return Windows(windows[:, :-1].copy(), windows[:, 1:].copy(), known)
