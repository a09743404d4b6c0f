"""A group of one process exchanges nothing, and a batch is shared evenly or not at all."""

import os
import signal

import pytest
import torch

from chargpt.errors import UserError
from chargpt.interrupt import Interrupt
from chargpt.training.group import Group, check_batch
from chargpt.training.parallel import Processes


def test_one_process_has_everything_and_exchanges_nothing():
    with Group() as group:
        assert group.is_first and group.rows(8) == slice(0, 8) and group.share("text") == "text"
        vector = torch.zeros(5)
        with group.summing(vector):
            vector[:3] = torch.arange(3.0)
        group.broadcast(vector)
        assert vector.tolist() == [0, 1, 2, 0, 0] and type(group.interrupt) is Interrupt
        with pytest.raises(ZeroDivisionError), group.together():
            raise ZeroDivisionError


@pytest.mark.usefixtures("default_signals")
def test_a_process_that_is_about_to_end_is_not_ended_by_torchrun():
    """It sends SIGTERM to all as soon as one has ended."""
    with Processes(0, 2).interrupt as interrupt:
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    assert interrupt.came_here


@pytest.mark.parametrize("size", [1, 2, 3, 4, 12])
def test_every_row_of_a_batch_has_one_process(size):
    rows = [Processes(rank, size).rows(12) for rank in range(size)]
    assert [row for each in rows for row in range(12)[each]] == list(range(12))


def test_a_batch_that_the_processes_cannot_share_is_one_line():
    check_batch(12, 4)
    with pytest.raises(UserError, match="train.batch_size: 9 given, which 4 processes cannot share equally; use 8 or 12"):
        check_batch(9, 4)
    with pytest.raises(UserError, match="train.batch_size: 3 given, which 4 processes cannot share equally; use 4"):
        check_batch(3, 4)
