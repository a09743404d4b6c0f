"""An index of the training split of an encoded text: it finds the longest match of any sequence.

It is a suffix array ("Suffix arrays: a new method for on-line string searches", Manber and Myers 1990) of each CHUNK of the
text, beside the ids in the cache: `train.suffixes` holds, for each chunk, the places of its suffixes in ascending order. Chunks
bound the memory of making it to about 0.4 GB, whatever the size of the text. A chunk is sorted together with the OVERLAP ids
that follow it, so that every match of up to OVERLAP ids is found; of a longer one, at least that much.
"""

import contextlib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from os.path import commonprefix

import numpy as np
from tqdm import tqdm

from chargpt.errors import UserError
from chargpt.files import SyncedFile, publishing, remove_left_behind
from chargpt.terminal import shown
from chargpt.text.cache import EncodedText

CHUNK = 2**22  # ids that are sorted together
OVERLAP = 2**16  # ids after a chunk that are sorted with it
NAME = "train.suffixes"  # change it whenever the same ids give another file
COMPARED = 32  # ids compared at a time


class SuffixIndex:
    """The places of any sequence in a text of `ids`.

    `suffixes` (n,) are those of `sorted_chunks`, one chunk after the other: places relative to the start of the chunk.
    """

    def __init__(self, ids: np.ndarray, suffixes: np.ndarray, *, chunk: int = CHUNK) -> None:
        self._ids, suffixes = np.asarray(ids), np.asarray(suffixes)  # a part of a mapped array takes longer to make
        self._chunks = [(start, suffixes[start : start + chunk]) for start in range(0, len(ids), chunk)]

    def count(self, wanted: np.ndarray) -> int:
        """How often the sequence `wanted`, of at most OVERLAP ids, occurs in the text."""
        sequence, count = wanted.tolist(), 0
        for start, suffixes in self._chunks:
            content, order = self._content(start, suffixes, 0, len(sequence)), range(len(suffixes))
            count += bisect_right(order, sequence, key=content) - bisect_left(order, sequence, key=content)
        return count

    def longest_matches(self, query: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each place in `query` (m,), the length of the longest sequence from there on that stands in the text, and where.

        `query` may contain -1 for what occurs in no text. Returns lengths (m,) and places in the text (m,), int64; the place of
        a match of length 0 means nothing.
        """
        wanted, found = query.tolist(), np.zeros((len(query), 2), np.int64)
        for start, suffixes in self._chunks:
            for place in range(len(wanted)):
                match = self._longest_match(wanted, place, start, suffixes)
                if match[0] > found[place, 0]:
                    found[place] = match
        return found[:, 0], found[:, 1]

    def _longest_match(self, query: list[int], place: int, start: int, suffixes: np.ndarray) -> tuple[int, int]:
        """The length of the longest match of `query` from `place` on with one chunk, and where it is.

        COMPARED ids at a time, by binary search among the suffixes that are equal so far.
        """
        first, high, length = 0, len(suffixes), 0
        while True:
            part = query[place + length : place + length + COMPARED]
            content = self._content(start, suffixes, length, len(part))
            low = bisect_left(order := range(high), part, first, high, key=content)
            near = [(len(commonprefix([content(i), part])), i) for i in (low - 1, low) if first <= i < high]
            common, best = max(near)
            if common < COMPARED:
                return length + common, start + int(suffixes[best])
            first, high, length = low, bisect_right(order, part, low, high, key=content), length + COMPARED

    def _content(self, start: int, suffixes: np.ndarray, after: int, count: int) -> Callable[[int], list[int]]:
        """What stands at each suffix of a chunk, in its order: `count` ids, `after` as many."""

        def content(i: int) -> list[int]:
            at = start + int(suffixes[i]) + after
            return self._ids[at : at + count].tolist()

        return content


def sort_suffixes(ids: np.ndarray, *, vocab_size: int) -> np.ndarray:
    """The places of the suffixes of `ids` (m,) in ascending order, int32 (m,). A suffix precedes those that continue it.

    By prefix doubling: sorted by their first h ids, suffixes that are equal so far are sorted by the rank of what follows the
    h ids, which sorts them by 2 h. After the first round, only suffixes that are still equal take part (Larsson and Sadakane,
    "Faster suffix sorting", 1999). Takes about 80 bytes for each id.
    """
    m, bits = len(ids), int(vocab_size).bit_length()
    h = 64 // bits  # as many ids as fit into 64 bits
    keys = np.zeros(m, np.uint64)
    for i in range(h):
        keys <<= np.uint64(bits)
        keys[: max(0, m - i)] |= ids[i:].astype(np.uint64) + np.uint64(1)  # 0 is the end
    order = np.argsort(keys).astype(np.int32)
    is_new = np.append(np.ones(min(m, 1), bool), keys[order][1:] != keys[order][:-1])
    places = np.arange(m, dtype=np.int32)
    rank = np.empty(m, np.int32)  # of each suffix: the place in `order` where its group of equal ones begins
    group = np.maximum.accumulate(np.where(is_new, places, 0))
    rank[order] = group
    left = np.flatnonzero(~(is_new & np.append(is_new[1:], True)))  # places in `order` of groups with several members
    group = group[left]
    while len(left):
        members = order[left]
        following = members.astype(np.int64) + h
        next_rank = np.where(following < m, np.take(rank, following, mode="clip").astype(np.int64) + 1, 0)
        ranks = group.astype(np.int64) * (m + 1) + next_rank
        by_rank = np.argsort(ranks)
        ranks, members = ranks[by_rank], members[by_rank]
        is_new = np.append(True, ranks[1:] != ranks[:-1])
        group = np.maximum.accumulate(np.where(is_new, left, 0)).astype(np.int32)
        order[left], rank[members] = members, group
        several = ~(is_new & np.append(is_new[1:], True))
        left, group, h = left[several], group[several], 2 * h
    return order


def sorted_chunks(ids: np.ndarray, *, vocab_size: int, chunk: int = CHUNK, overlap: int = OVERLAP) -> Iterator[np.ndarray]:
    """The suffixes that begin in each chunk of `ids`, in ascending order, uint32: places relative to the start of the chunk."""
    for start in range(0, len(ids), chunk):
        order = sort_suffixes(np.asarray(ids[start : start + chunk + overlap]), vocab_size=vocab_size)
        yield order[order < chunk].astype("<u4")


def open_index(text: EncodedText) -> SuffixIndex | None:
    """The index of the training split, if it is kept beside its ids. What it finds is always compared with them."""
    if text.folder is not None:
        with contextlib.suppress(OSError, ValueError):
            suffixes = np.memmap(text.folder / NAME, "<u4", mode="r")
            return SuffixIndex(text.train, suffixes) if len(suffixes) == len(text.train) else None
    return None


def open_or_make_index(text: EncodedText) -> SuffixIndex:
    """The index of the training split; it is made and kept if there is none yet. Raises UserError if it cannot be written."""
    if index := open_index(text):
        return index
    assert text.folder is not None, "only an encoded text in the cache has an index"
    path = text.folder / NAME
    try:
        remove_left_behind(text.folder, re.compile(re.escape(NAME)))
        progress = tqdm(desc="indexing", total=len(text.train), unit="B", unit_scale=True, delay=1, leave=False, disable=None)
        with publishing(path) as aside, SyncedFile(aside) as file, progress:
            for suffixes in sorted_chunks(text.train, vocab_size=text.tokenizer.vocab_size):
                file.write(suffixes.data.cast("B"))
                progress.update(len(suffixes))
    except OSError as error:
        raise UserError(f"{shown(path)}: {error.strerror}; make its folder writable, or free some space") from None
    index = open_index(text)
    assert index is not None, "it has just been written"
    return index
