"""Joining the group of processes that torchrun started, if it did."""

import os
import re
from contextlib import AbstractContextManager

from chargpt.parallel.group import Group
from chargpt.terminal import UserError


def join_group() -> AbstractContextManager[Group]:
    """The group that this process belongs to: that of torchrun's processes, or one by itself. A context manager.

    Raises UserError if the number of processes is not a power of two, or a variable of torchrun is not a number.
    """
    size = _number("WORLD_SIZE", default=1)
    if size == 1:
        return Group()
    rank = _number("RANK")
    if size & (size - 1):
        least = 1 << (size.bit_length() - 1)
        if rank:
            raise SystemExit(2)  # the first process says it
        raise UserError(f"--nproc-per-node: {size} processes in all; use a power of two, such as {least} or {2 * least}")
    if os.environ.get("MASTER_PORT", "").strip() == "0":  # each process would take another port
        raise UserError("MASTER_PORT: '0' given; use the same free port for all processes, such as 29500")
    from chargpt.parallel.processes import Processes  # imports torch.distributed

    local_rank, restarts = _number("LOCAL_RANK"), _number("TORCHELASTIC_RESTART_COUNT")
    return Processes(rank, size, local_rank=local_rank, restarts=restarts)


def _number(name: str, *, default: int = 0) -> int:
    """The number in an environment variable that torchrun sets; `default` if it is missing or empty."""
    given = os.environ.get(name) or str(default)
    if not re.fullmatch("[0-9]{1,6}", given) or int(given) < default:
        raise UserError(f"{name}: {given!r} given; torchrun sets this variable to a number. Without torchrun, unset it")
    return int(given)
