"""A group of one process exchanges nothing, and has every part."""

import torch

from chargpt.interrupt import Interrupt
from chargpt.parallel.group import Group


def test_one_process_has_everything_and_hears_itself():
    with Group() as group:
        assert group.is_first and group.chunks(8) == group.owned(8) == range(8)
        assert group.exchange([1.5, 2.0]) == [[1.5, 2.0]] and group.from_first([3]) == [3]
        assert group.meet("name", "text") == ["text"] and group.broadcast_text("text") == "text"
        vector = torch.arange(10.0)
        group.sum_parts(vector, [[0, 5, 10]])
        group.gather_parts(vector, [[0, 5, 10]])
        assert torch.equal(vector, torch.arange(10.0)) and group.collect(vector, [0, 10]) is vector
        assert type(group.interrupt()) is Interrupt and group.describe() == ""
