"""A group of one process exchanges nothing; parts cover a vector once; what a process has published outlasts it."""

import pytest
import torch
import torch.distributed as dist

from chargpt.interrupt import Interrupt
from chargpt.parallel.group import ALIGNED, Group, cuts_between, even_cuts, ranges


def test_one_process_has_everything_and_hears_itself():
    with Group() as group:
        assert group.is_first and group.own(8) == range(8)
        assert group.exchange([1.5, 2.0]) == [[1.5, 2.0]] and group.from_first([3]) == [3]
        assert group.meet("name", "text") == ["text"] and group.broadcast_text("text") == "text"
        vector = torch.arange(10.0)
        group.reduce(vector, [[0, 5, 10]])
        group.share(vector, [[0, 5, 10]])
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


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("count", [8, 64])
def test_every_chunk_and_every_part_has_one_process(size, count):
    groups = [Group() for _ in range(size)]
    for rank, group in enumerate(groups):
        group.rank, group.size = rank, size
    assert [number for group in groups for number in group.own(count)] == list(range(count))


@pytest.mark.parametrize("length", [0, 1, 63, 64, 1000, 10**6])
@pytest.mark.parametrize("count", [1, 2, 8, 64])
def test_even_cuts_cover_everything_in_aligned_parts(length, count):
    cuts = even_cuts(7, 7 + length, count)
    assert (cuts[0], cuts[-1], len(cuts)) == (7, 7 + length, count + 1) and cuts == sorted(cuts)
    assert all((cut - 7) % ALIGNED == 0 for cut in cuts if cut < 7 + length)
    assert max(b - a for a, b in zip(cuts, cuts[1:])) <= -(-length // count) + ALIGNED


@pytest.mark.parametrize("layers", [1, 4, 6, 24])
@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_a_matrix_stays_whole_and_parts_are_balanced(layers, count):
    ends, end = [], 0
    for size in [1] * 4 * layers + [4] * 2 * layers:  # in units of width x width
        end += size
        ends.append(end)
    cuts = cuts_between(ends, count)
    assert (cuts[0], cuts[-1], len(cuts)) == (0, end, count + 1) and cuts == sorted(cuts)
    assert set(cuts) <= {0, *ends}
    assert max(b - a for a, b in zip(cuts, cuts[1:])) <= end / count + 4  # one matrix of the MLP more than its share


def test_the_ranges_of_all_parts_are_the_whole_vector():
    regions = [cuts_between([10, 20, 60, 100], 4), even_cuts(100, 1000, 4)]
    covered = sorted(i for part in range(4) for piece in ranges(regions, part) for i in range(piece.start, piece.stop))
    assert covered == list(range(1000))


def test_one_part_is_one_range():
    assert ranges([[0, 100], [100, 1000]], 0) == [slice(0, 1000)]
    assert ranges([[0, 0, 5], [5, 9, 9]], 0) == [slice(5, 9)]
