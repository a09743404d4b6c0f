"""The group of this process, as torchrun has started it, or not."""

import os
import re

from chargpt.errors import UserError
from chargpt.training.group import Group


def join_group() -> Group:
    """The group of this process: that of torchrun's processes, or one by itself. Raises UserError."""
    size = _number("WORLD_SIZE", default=1)
    if size == 1:
        return Group()
    from chargpt.training.parallel import Processes

    if (rank := _number("RANK")) >= size:
        what = f"RANK: this environment variable is {rank}, but {size} processes have the numbers 0 to {size - 1}"
        raise UserError(f"{what}; start them with torchrun, which sets it, or unset RANK and WORLD_SIZE")
    numbers = {"local_rank": _number("LOCAL_RANK"), "restarts": _number("TORCHELASTIC_RESTART_COUNT")}
    return Processes(rank, size, local_size=_number("LOCAL_WORLD_SIZE") or size, **numbers)


def _number(name: str, *, default: int = 0) -> int:
    """The number in an environment variable that torchrun sets; `default` if it is missing or empty."""
    given = os.environ.get(name) or str(default)
    if not re.fullmatch("[0-9]{1,6}", given) or int(given) < default:
        raise UserError(f"{name}: {given!r} given; torchrun sets it to a number; without torchrun, type: unset {name}")
    return int(given)
