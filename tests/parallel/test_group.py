"""A group of one process exchanges nothing, and has every part; what a process has published outlasts it."""

import pytest
import torch
import torch.distributed as dist

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


@pytest.mark.skipif(not dist.is_available(), reason="needs a torch with torch.distributed")
def test_what_a_process_published_before_it_failed_is_read():
    """Both may happen while another process sleeps. That one then finds the mistake by itself, and leaves it to the first."""
    from chargpt.parallel.processes import FAILURE, PeerLost, Processes

    class Slow(dist.HashStore):
        """The first process acts after the first question."""

        acts: dict[str, str] = {}

        def check(self, keys: list[str]) -> bool:
            answer = super().check(keys)
            for key, value in self.acts.items():
                self.set(key, value)
            return answer

    group = Processes(1, 2, local_rank=1, restarts=0)
    group._store = Slow()
    group._store.acts = {"host/0": "here", FAILURE: "0: a mistake"}
    assert group.read("host") == "here"
    group._store.acts = {}
    with pytest.raises(PeerLost, match="another process has failed"):
        group.read("other")
