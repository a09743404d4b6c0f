"""The group of processes that train one run: what they exchange, and how they divide a vector. Here, the group of one process.

`processes.py` is the group of several, which torchrun starts.
"""

from collections.abc import Sequence
from types import TracebackType

import torch
from torch import Tensor

from chargpt.interrupt import Interrupt

ALIGNED = 64  # numbers; a part begins at a cache line


class Group:
    """A group of one process, which exchanges nothing. Processes are numbered by `rank`, from 0 to `size` - 1, and those of one
    machine by `local_rank`, from 0 to `local_size` - 1.

    The batch is cut into G chunks, and each region of a vector into G parts; G is a multiple of the number of processes. The
    `cuts` of a region are G + 1 ascending positions. A process computes the chunks `own(G)`, and updates the parts `own(G)`.
    What it computes for a chunk or a part must not depend on the others that it has: then every number of processes computes
    the same bits.
    """

    rank, size, local_rank, local_size = 0, 1, 0, 1
    restarted_after_save = False  # whether torchrun has started these processes again, after they had saved a checkpoint

    @property
    def is_first(self) -> bool:
        """Whether this process prints, writes the run and draws samples."""
        return self.rank == 0

    def own(self, count: int) -> range:
        """The chunks of a batch, or the parts of a region, that this process has of `count`: neighbours."""
        each = count // self.size
        return range(self.rank * each, (self.rank + 1) * each)

    def interrupt(self) -> Interrupt:
        """Signals, as all processes agree on them."""
        return Interrupt()

    def describe(self) -> str:
        """One line for the user; empty for one process."""
        return ""

    def prepare(self, device: torch.device, *, timeout: int) -> torch.device:
        """The device for this process when the run asks for `device`. It waits `timeout` seconds for another process."""
        return device

    # The step

    def reduce(self, vector: Tensor, regions: Sequence[Sequence[int]]) -> None:
        """Sum `vector` over the processes, as a binary tree in the order of ranks; each gets the sum of its own parts.

        `regions` are the cuts of each region. What is outside the own parts has no meaning afterwards.
        """

    def share(self, vector: Tensor, regions: Sequence[Sequence[int]]) -> None:
        """Give every process the parts of `vector` that the others own."""

    def exchange(self, values: Sequence[float] = ()) -> list[list[float]]:
        """The `values` of every process, by rank; all give equally many. The processes then also agree on signals."""
        return [list(values)]

    # The state

    def from_first(self, values: Sequence[float]) -> list[float]:
        """The `values` of the first process."""
        return list(values)

    def broadcast(self, tensor: Tensor) -> None:
        """Copy the first process's `tensor` into that of all others."""

    def broadcast_text(self, text: str | None) -> str:
        """The first process's `text`."""
        assert text is not None
        return text

    def collect(self, own: Tensor, cuts: Sequence[int]) -> Tensor | None:
        """The whole of a region of which each process has `own`, its parts, on the first process; None elsewhere."""
        return own

    # The start, in which a process may wait for long

    def note_save(self) -> None:
        """Remember that the processes have saved a checkpoint, also if torchrun starts them again."""

    def publish(self, name: str, text: str) -> None:
        """Give the others a text, which they `read`."""

    def read(self, name: str, rank: int = 0) -> str:
        """The text that the process `rank` has published; waits for it. A process that is alone has no other to read from."""
        raise LookupError(f"{name}: nothing to read in a group of one process")

    def meet(self, name: str, text: str) -> list[str]:
        """The texts of all processes, by rank; waits for as long as it takes."""
        return [text]

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None


def even_cuts(start: int, stop: int, count: int) -> list[int]:
    """Cut start..stop into `count` parts of nearly equal length, anywhere: count + 1 ascending positions."""
    length = -(-(stop - start) // (count * ALIGNED)) * ALIGNED if count > 1 else stop - start
    return [min(stop, start + number * length) for number in range(count + 1)]


def cuts_between(ends: Sequence[int], count: int) -> list[int]:
    """Cut 0..ends[-1] into `count` parts of nearly equal length, but only at one of `ends`: a matrix stays whole."""
    total = ends[-1] if ends else 0
    return [min((0, *ends), key=lambda end: abs(end * count - number * total)) for number in range(count + 1)]


def ranges(regions: Sequence[Sequence[int]], part: int) -> list[slice]:
    """The ranges of a part, one of each region; neighbouring ones are joined and empty ones are left out."""
    joined: list[slice] = []
    for cuts in regions:
        start, stop = cuts[part], cuts[part + 1]
        if joined and joined[-1].stop == start:
            joined[-1] = slice(joined[-1].start, stop)
        elif start < stop:
            joined.append(slice(start, stop))
    return joined
