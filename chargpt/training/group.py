"""The processes that train one run together: one alone, or those of parallel.py."""

import contextlib
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TypeVar

import torch
from torch import Tensor

from chargpt.errors import UserError
from chargpt.interrupt import Interrupt

FLAGS = 2  # the last numbers of every vector that is summed: a signal came; something failed
T = TypeVar("T")


class Group:
    """This process alone, which exchanges nothing. A context manager. Of several, all call the same methods in the same order;
    `rank` is this one, and the first one reads options, decides, prints and writes."""

    rank, size, local_size = 0, 1, 1
    is_first = True
    restarted_after_save = False  # whether torchrun has started these processes again, after a save

    def __init__(self) -> None:
        self.interrupt = Interrupt()  # signals, as all know of them

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Tell the others how this process ends."""

    def rows(self, batch_size: int) -> slice:
        """The rows of a batch that this process computes."""
        each = batch_size // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    def device(self, asked: torch.device) -> torch.device:
        """The device of this process when the run asks for this one."""
        return asked

    @contextlib.contextmanager
    def summing(self, vector: Tensor) -> Iterator[None]:
        """Sum `vector`, which this block fills, over the processes. Its last FLAGS numbers are those for `read`."""
        yield

    def read(self, flags: Sequence[float]) -> None:
        """Act on the flags of a vector that was summed: agree on a signal, or end since another process has failed."""

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """No process goes on after this block before all have done it. If it fails in one, it fails in the others."""
        yield

    def share(self, value: T, *tensors: Tensor) -> T:
        """The `value` of the first process, whose `tensors` are copied into those of the others."""
        return value

    def broadcast(self, *tensors: Tensor) -> None:
        """Copy the tensors of the first process into those of the others."""

    def note_save(self) -> None:
        """Record that a checkpoint exists, where the processes find it after a restart."""


def check_batch(batch_size: int, processes: int) -> None:
    """Raise UserError unless the processes can share a batch evenly."""
    below = batch_size // processes * processes
    if below != batch_size:
        sizes = f"{below} or {below + processes}" if below else f"{processes}"
        raise UserError(f"train.batch_size: {batch_size} given, which {processes} processes cannot share equally; use {sizes}")
