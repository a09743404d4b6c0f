"""The batch of a step: windows of the training text, as a pure function of (seed, step)."""

import mmap
import weakref

import numpy as np
import torch
from torch import Tensor

from chargpt.device import sent
from chargpt.text.shuffle import splitmix64

BLOCK = 1024  # samples whose starts are computed at once
PART = 2**22  # ids copied to a device at once
_ON_DEVICE: dict[tuple[int, torch.device], Tensor] = {}  # copies of arrays that live, by their id
LARGE = 2**28  # bytes; windows of a larger text are requested from the disk in advance


class Batches:
    """Batches of windows, drawn without replacement within an epoch, in constant memory whatever the size of the text.

    An epoch tiles `ids` (N of them) with windows of stride T = block_size. Its offset is its own, so that the borders between
    windows move from epoch to epoch. It has W = max(1, (N - T) // T) windows, ordered by a keyed permutation that is computed
    as needed. Sample number i of a run is window i % W of epoch i // W; a step takes accumulate * batch_size consecutive
    samples, batch_size for each of its micro-batches. Nothing else that a run does (evaluate, log, sample, stop and resume)
    changes them.

    Batches are on `device`. With `resident`, the ids on that device, they are gathered there.
    """

    def __init__(
        self,
        ids: np.ndarray,
        block_size: int,
        *,
        batch_size: int,
        seed: int,
        accumulate: int = 1,
        device: torch.device = torch.device("cpu"),
        resident: Tensor | None = None,
    ) -> None:
        assert ids.ndim == 1 and len(ids) > 0
        if len(ids) <= block_size:  # a text shorter than the context of a start is repeated
            ids = np.resize(ids, block_size + 1)
        self.per_epoch = max(1, (len(ids) - block_size) // block_size)
        self._slack = len(ids) - self.per_epoch * block_size  # the number of offsets that keep the last window inside
        self._rows = np.lib.stride_tricks.sliding_window_view(np.asarray(ids), block_size + 1)
        self._block_size, self._seed = block_size, seed
        self._batch_size, self._accumulate = batch_size, accumulate
        self._cached = (-1, np.empty(0, np.int64))
        self._device = device
        self._resident, self._offsets = resident, torch.arange(block_size + 1, device=device)
        file: object = ids.base
        self._file = file if isinstance(file, mmap.mmap) and ids.nbytes > LARGE else None

    def batch(self, step: int, micro: int = 0, rows: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a micro-batch of `step`, or of some of its rows, (B, T) int64 each.

        The targets are the characters after the inputs.
        """
        return self.windows(sent(self.fetch(step, micro, rows), self._device))

    def fetch(self, step: int, micro: int, rows: slice) -> Tensor:
        """What `windows` needs for a batch, on the host, int64: characters (B, T + 1), or where they begin (B,)."""
        starts = self.starts(step, micro)[rows]
        return torch.from_numpy(self._rows[starts].astype(np.int64) if self._resident is None else starts)

    def windows(self, fetched: Tensor) -> tuple[Tensor, Tensor]:
        """The batch that was fetched and copied to the device."""
        if self._resident is not None:
            fetched = self._resident[fetched[:, None] + self._offsets].long()
        return fetched[:, :-1].contiguous(), fetched[:, 1:].contiguous()

    def starts(self, step: int, micro: int = 0) -> np.ndarray:
        """Where the windows of `batch(step, micro)` begin, (B,) int64."""
        first = (step * self._accumulate + micro) * self._batch_size
        block, skip = divmod(first, BLOCK)
        parts = [self._block(block)[skip : skip + self._batch_size]]
        while (have := sum(map(len, parts))) < self._batch_size:
            block += 1
            parts.append(self._block(block)[: self._batch_size - have])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _block(self, number: int) -> np.ndarray:
        if self._cached[0] != number:
            samples = np.arange(number * BLOCK, (number + 1) * BLOCK)
            self._cached = (number, self._starts_of(samples))
            if self._file is not None and hasattr(mmap, "MADV_WILLNEED"):  # Windows cannot
                self._request(self._file, self._cached[1])
        return self._cached[1]

    def _request(self, file: mmap.mmap, starts: np.ndarray) -> None:
        """Have the system read windows from the disk in the background, all at once instead of one page fault at a time."""
        size = self._rows.itemsize
        first = starts * size // mmap.PAGESIZE * mmap.PAGESIZE
        for begin, length in zip(first.tolist(), ((starts + self._block_size + 1) * size - first).tolist()):
            file.madvise(mmap.MADV_WILLNEED, begin, length)

    def _starts_of(self, samples: np.ndarray) -> np.ndarray:
        """Sample numbers to window starts, int64."""
        epochs, positions = np.divmod(samples.astype(np.uint64), np.uint64(self.per_epoch))
        key = keys_of(epochs, self._seed)
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
