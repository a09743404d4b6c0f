"""Where a vector is cut into parts, of which each process updates its own."""

from collections.abc import Iterator, Sequence

ALIGNED = 64  # numbers; parts begin at a cache line


def even_cuts(start: int, stop: int, count: int) -> list[int]:
    """Cut start..stop into `count` parts of nearly equal length, anywhere: count + 1 ascending positions."""
    length = -(-(stop - start) // (count * ALIGNED)) * ALIGNED if count > 1 else stop - start
    return [min(stop, start + number * length) for number in range(count + 1)]


def cuts_between(ends: Sequence[int], count: int) -> list[int]:
    """Cut 0..ends[-1] into `count` parts of nearly equal length, but only at one of `ends`: a matrix stays whole."""
    total = ends[-1] if ends else 0
    return [min((0, *ends), key=lambda end: abs(end * count - number * total)) for number in range(count + 1)]


def ranges(regions: Sequence[Sequence[int]], part: int) -> list[slice]:
    """The ranges of a part, one of each region; neighbouring ones are joined and empty ones are left out."""
    joined: list[slice] = []
    for cuts in regions:
        start, stop = cuts[part], cuts[part + 1]
        if joined and joined[-1].stop == start:
            joined[-1] = slice(joined[-1].start, stop)
        elif start < stop:
            joined.append(slice(start, stop))
    return joined


def rounds(rank: int, size: int, count: int) -> Iterator[tuple[int, range, range]]:
    """For each round of a sum: the partner of a process, and which of `count` parts it keeps and gives away."""
    parts = range(count)
    for bit in range(size.bit_length() - 1):
        halves = parts[: len(parts) // 2], parts[len(parts) // 2 :]
        parts, given = halves[:: -1 if rank >> bit & 1 else 1]
        yield rank ^ 1 << bit, parts, given


def owned_by(rank: int, size: int, count: int) -> range:
    """The parts, of `count`, that a process has after all rounds."""
    return [range(count), *(kept for _, kept, _ in rounds(rank, size, count))][-1]
