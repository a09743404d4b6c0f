"""The batch of a step: windows of the training text, as a pure function of (seed, step)."""

import functools
import weakref

import numpy as np
import torch
from torch import Tensor

from chargpt.config import TrainConfig
from chargpt.text.shuffle import splitmix64

PART = 2**22  # ids copied to a device at once
BLOCK = 1024  # windows whose places are computed at once: for one batch, numpy's calls take a twentieth of a small step
_ON_DEVICE: dict[tuple[int, torch.device], Tensor] = {}  # copies of arrays that live, by their id


class Batches:
    """Batches of windows, drawn without replacement within an epoch, in constant memory whatever the size of the text.

    An epoch tiles `ids` (N of them) with windows of stride T = block_size. Its offset is its own, so that the borders between
    windows move from epoch to epoch. It has W = max(1, (N - T) // T) windows, ordered by a keyed permutation that is computed
    as needed. Sample number i of a run is window i % W of epoch i // W; a step takes accumulate * batch_size consecutive
    samples, batch_size for each of its micro-batches. Nothing else that a run does changes them.

    With `resident`, the ids on a device, windows are gathered there.
    """

    def __init__(self, ids: np.ndarray, block_size: int, *, train: TrainConfig, resident: Tensor | None = None) -> None:
        assert ids.ndim == 1 and len(ids) > 0
        if len(ids) <= block_size:  # a text shorter than the context of a start is repeated
            ids = np.resize(ids, block_size + 1)
        self.per_epoch = max(1, (len(ids) - block_size) // block_size)
        self._slack = len(ids) - self.per_epoch * block_size  # the number of offsets that keep the last window inside
        self._rows = np.lib.stride_tricks.sliding_window_view(np.asarray(ids), block_size + 1)
        self._block_size, self._train = block_size, train
        self._resident, self._block = resident, functools.lru_cache(2)(self._starts_of)
        self._offsets = torch.arange(block_size + 1, device=None if resident is None else resident.device)

    def fetch(self, step: int, micro: int, rows: slice) -> Tensor:
        """What `windows` needs for these rows of a micro-batch of `step`, on the host, int64: characters (B, T + 1), or where
        they begin (B,)."""
        starts = self.starts(step, micro)[rows]
        return torch.from_numpy(self._rows[starts].astype(np.int64) if self._resident is None else starts)

    def windows(self, fetched: Tensor) -> tuple[Tensor, Tensor]:
        """The inputs that were fetched and copied to the device, and as targets the characters after them, (B, T) each."""
        if self._resident is not None:
            fetched = self._resident[fetched[:, None] + self._offsets].long()
        return fetched[:, :-1].contiguous(), fetched[:, 1:].contiguous()

    def starts(self, step: int, micro: int = 0) -> np.ndarray:
        """Where the windows of a micro-batch of `step` begin, (B,) int64."""
        count = self._train.batch_size
        first = (step * self._train.accumulate + micro) * count
        block, skipped = divmod(first, BLOCK)
        blocks = range(block, (first + count - 1) // BLOCK + 1)
        return np.concatenate([self._block(number) for number in blocks])[skipped:][:count]

    def _starts_of(self, block: int) -> np.ndarray:
        """Where the windows of BLOCK samples begin, (BLOCK,) int64."""
        samples = np.arange(block * BLOCK, (block + 1) * BLOCK, dtype=np.uint64)
        epochs, positions = np.divmod(samples, np.uint64(self.per_epoch))
        key = keys_of(epochs, self._train.seed)
        positions = permuted(positions, self.per_epoch, key[1:])
        return (positions * np.uint64(self._block_size) + key[0] % np.uint64(self._slack)).astype(np.int64)


def on_device(ids: np.ndarray, device: torch.device) -> Tensor:
    """All `ids` on `device`, copied there once as long as the array lives: for candidates, sweeps and stages."""
    if (known := _ON_DEVICE.get((id(ids), device))) is not None:
        return known
    # Torch indexes by no unsigned type but uint8.
    copied = torch.empty(len(ids), dtype=torch.uint8 if ids.dtype == np.uint8 else torch.int32, device=device)
    for start in range(0, len(ids), PART):
        copied[start : start + PART] = torch.from_numpy(ids[start : start + PART].astype(np.int32))
    _ON_DEVICE[id(ids), device] = copied
    weakref.finalize(ids, _ON_DEVICE.pop, (id(ids), device))
    return copied


def keys_of(epochs: np.ndarray, seed: int) -> np.ndarray:
    """Eight numbers for each of the `epochs` (n,), uint64, (8, n)."""
    mixed = splitmix64(epochs ^ splitmix64(np.array([seed], np.uint64)))
    return splitmix64(np.arange(8, dtype=np.uint64)[:, None] + mixed)


def permuted(numbers: np.ndarray, size: int, key: np.ndarray) -> np.ndarray:
    """The images of `numbers` (n,), uint64, each below `size`, under a permutation of range(size).

    `key`, uint64 (7, n) or (7, 1), chooses the permutation of each number. On b-bit integers adding, multiplying by an odd
    number and xor with the upper bits shifted down are all bijections. A result outside range(size) is permuted again until
    it is inside (cycle walking), which keeps the whole a bijection.
    """
    bits = max(1, (size - 1).bit_length())
    mask, shift = np.uint64(2**bits - 1), np.uint64((bits + 1) // 2)
    key = np.broadcast_to(key, (7, len(numbers)))
    result, walking = numbers.copy(), np.arange(len(numbers))
    while len(walking):
        start, *odds_and_adds = key[:, walking]
        x = (result[walking] + start) & mask
        for odd, add in zip(odds_and_adds[:3], odds_and_adds[3:]):
            x = ((x ^ (x >> shift)) * (odd | np.uint64(1)) + add) & mask
        x ^= x >> shift
        result[walking] = x
        walking = walking[x >= size]
    return result
