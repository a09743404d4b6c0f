"""The batch of a step on a list of items: windows that begin at an item, as a pure function of (seed, step)."""

import bisect
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from chargpt.config import TrainConfig
from chargpt.text.item_stream import ItemMarks
from chargpt.text.windows import windows_at
from chargpt.training.batches import keys_of, permuted


class ItemBatches:
    """Batches of windows over a list of items: those of `Batches`, but a window begins at an item.

    An epoch reads the items in an order of its own, a keyed permutation. A window holds as many whole items as fit, each with
    its end, after the end of the item before the first one; the rest of it is not predicted. An item that is longer than a
    window goes on in the next one. An epoch has as many windows as the items need in their first order; one that needs more
    leaves out its last items, and one that needs less repeats its first ones.

    Targets that do not count are IGNORED: what is left of a window, and labels, unless `train.label_loss`.
    """

    def __init__(self, ids: np.ndarray, block_size: int, *, train: TrainConfig, marks: ItemMarks) -> None:
        self._ids, self._block_size, self._end = np.asarray(ids), block_size, marks.end
        self._starts, stops = marks.bounds(self._ids)
        self._lengths = stops + 1 - self._starts
        self._counted = None if train.label_loss or marks.tab is None else marks.counted(self._ids)
        self._train = train
        self._layouts: dict[int, _Layout] = {}  # of the last two epochs
        self.per_epoch = len(self._layout(np.arange(len(stops))).starts)

    def fetch(self, step: int, micro: int, rows: slice) -> Tensor:
        """Inputs and targets of these rows of a micro-batch of `step`, in the memory of the host, (2, B, T) int64."""
        first = (step * self._train.accumulate + micro) * self._train.batch_size
        epochs, numbers = np.divmod(np.arange(first, first + self._train.batch_size)[rows], self.per_epoch)
        both = np.empty((2, len(epochs), self._block_size), np.int64)
        inputs, targets = both
        for epoch in np.unique(epochs):
            own, (stream, counted, starts, sizes) = epochs == epoch, self._of_epoch(int(epoch))
            at, count = starts[numbers[own]], sizes[numbers[own]]
            inputs[own], targets[own] = windows_at(stream, at, count, length=self._block_size, counted=counted)
        return torch.from_numpy(both)

    def windows(self, fetched: Tensor) -> tuple[Tensor, Tensor]:
        """The inputs and the targets that were fetched and copied to the device, (B, T) int64 each."""
        inputs, targets = fetched
        return inputs, targets

    def _of_epoch(self, epoch: int) -> "_Layout":
        if epoch not in self._layouts:
            key = keys_of(np.array([epoch], np.uint64), self._train.seed)[1:]
            numbers = np.arange(len(self._starts), dtype=np.uint64)
            layout = self._layout(permuted(numbers, len(numbers), key).astype(np.int64), windows=self.per_epoch)
            self._layouts = {number: known for number, known in self._layouts.items() if number == epoch - 1} | {epoch: layout}
        return self._layouts[epoch]

    def _layout(self, order: np.ndarray, *, windows: int | None = None) -> "_Layout":
        """The items in this order, and this many windows on them; None for as many as they need."""
        lengths = self._lengths[order]
        stops = np.cumsum(lengths)
        places = np.arange(stops[-1]) + np.repeat(self._starts[order] + lengths - stops, lengths)
        stream = np.concatenate([np.array([self._end], self._ids.dtype), self._ids[places]])
        counted = None if self._counted is None else np.concatenate([[False], self._counted[places]])
        # Where the end of each item is in this stream, which begins with an end.
        starts, sizes, at, last, ends = list[int](), list[int](), 0, len(stream) - 1, [0, *stops.tolist()]
        while at < last if windows is None else len(starts) < windows:
            at = 0 if at == last else at
            reached = ends[bisect.bisect_right(ends, at + self._block_size) - 1]
            size = reached - at if reached > at else self._block_size
            starts.append(at)
            sizes.append(size)
            at += size
        return _Layout(stream, counted, np.array(starts), np.array(sizes))


class _Layout(NamedTuple):
    """The items of an epoch, in its order, and its windows."""

    stream: np.ndarray  # ids
    counted: np.ndarray | None  # whether each of them is a target; None: all are
    starts: np.ndarray  # of the windows: the place of their first input
    sizes: np.ndarray  # how many ids each of them predicts
