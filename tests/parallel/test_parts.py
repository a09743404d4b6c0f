"""Where a vector is cut: the parts cover it once, matrices stay whole, and no part is much larger than the others."""

import pytest

from chargpt.parallel.parts import ALIGNED, cuts_between, even_cuts, owned_by, ranges, rounds


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


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("count", [8, 64])
def test_every_part_has_one_owner_after_rounds_in_which_partners_divide_their_parts(size, count):
    owned = [owned_by(rank, size, count) for rank in range(size)]
    assert sorted(part for parts in owned for part in parts) == list(range(count))
    for rank in range(size):
        for number, (partner, kept, given) in enumerate(rounds(rank, size, count)):
            other = [*rounds(partner, size, count)][number]
            assert other == (rank, given, kept)
