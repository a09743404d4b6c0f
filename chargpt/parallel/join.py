"""Joining the group of processes that torchrun started, if it did."""

import os
from contextlib import AbstractContextManager

from chargpt.parallel.group import Group
from chargpt.terminal import UserError


def join_group() -> AbstractContextManager[Group]:
    """The group that this process belongs to: that of torchrun's processes, or one by itself. A context manager.

    Raises UserError if the number of processes is not a power of two.
    """
    size = int(os.environ.get("WORLD_SIZE") or "1")
    if size == 1:
        return Group()
    rank = int(os.environ.get("RANK", "0"))
    if size & (size - 1):
        least = 1 << (size.bit_length() - 1)
        if rank:
            raise SystemExit(2)  # the first process says it
        raise UserError(f"--nproc-per-node: {size} processes in all; use a power of two, such as {least} or {2 * least}")
    from chargpt.parallel.processes import Processes  # imports torch.distributed

    local_rank, restarts = (int(os.environ.get(name, "0")) for name in ("LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT"))
    return Processes(rank, size, local_rank=local_rank, restarts=restarts)
