"""The processes that train one run together, and what they exchange. This module is the group of one process.

`processes.py` is the group of several, which torchrun starts. A single process imports nothing of torch.distributed.
"""

from collections.abc import Sequence
from types import TracebackType

import torch
from torch import Tensor

from chargpt.interrupt import Interrupt


class Group:
    """A group of one process, which exchanges nothing. Processes are numbered by `rank`, from 0 to `size` - 1.

    A vector is cut at `cuts`, G + 1 ascending positions, into G parts; G is a multiple of the number of processes. A process
    owns `owned(G)` of these parts. What is computed for a part must not depend on which other parts its process owns: then
    every number of processes computes the same bits.
    """

    rank, size, local_rank = 0, 1, 0
    has_begun = False  # whether torchrun has started these processes again, after they had begun a run

    @property
    def is_first(self) -> bool:
        """Whether this process prints, writes the run and draws samples."""
        return self.rank == 0

    def chunks(self, count: int) -> range:
        """The chunks of a batch, of `count`, whose gradient this process computes."""
        each = count // self.size
        return range(self.rank * each, (self.rank + 1) * each)

    def owned(self, count: int) -> range:
        """The parts of a vector, of `count`, that this process sums and updates."""
        return range(count)

    def interrupt(self) -> Interrupt:
        """Signals, as all processes agree on them."""
        return Interrupt()

    def describe(self) -> str:
        """One line for the user; empty for one process."""
        return ""

    def prepare(self, device: torch.device, *, timeout: int) -> torch.device:
        """The device for this process when the run asks for `device`. It waits `timeout` seconds for another one."""
        return device

    def exchange(self, values: Sequence[float] = ()) -> list[list[float]]:
        """The `values` of every process, by rank; all give equally many. The processes then also agree on signals."""
        return [list(values)]

    def from_first(self, values: Sequence[float]) -> list[float]:
        """The `values` of the first process."""
        return list(values)

    def broadcast(self, tensor: Tensor) -> None:
        """Copy the first process's `tensor` into that of all others."""

    def broadcast_text(self, text: str | None) -> str:
        """The first process's `text`."""
        assert text is not None
        return text

    def sum_parts(self, vector: Tensor, regions: Sequence[Sequence[int]]) -> None:
        """Sum `vector` over the processes, as a binary tree in the order of ranks; each gets the sum of the parts it owns.

        `regions` are the cuts of each region of the vector. What is outside the owned parts has no meaning afterwards.
        """

    def gather_parts(self, vector: Tensor, regions: Sequence[Sequence[int]]) -> None:
        """Give every process the parts of `vector` that the others own."""

    def collect(self, own: Tensor, cuts: Sequence[int]) -> Tensor | None:
        """The whole of a vector of which each process has `own`, its parts, on the first process; None elsewhere."""
        return own

    def note_begun(self) -> None:
        """Remember that the processes have begun a run, also if torchrun starts them again."""

    def publish(self, name: str, text: str) -> None:
        """Give the others a text, which they `read`. For the start of a run, where a process may wait for long."""

    def meet(self, name: str, text: str) -> list[str]:
        """The texts of all processes, by rank; waits for as long as it takes."""
        return [text]

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None
