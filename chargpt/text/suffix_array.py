"""An index of the training split of an encoded text: it finds the longest match of any sequence.

It is a suffix array ("Suffix arrays: a new method for on-line string searches", Manber and Myers 1990) of each CHUNK of the
text, beside the ids in the cache: `train.suffixes` holds, for each chunk, the places of its suffixes in ascending order. Chunks
bound the memory of making it to about 0.4 GB, whatever the size of the text. A chunk is sorted together with the OVERLAP ids
that follow it, so that every match of up to OVERLAP ids is found; of a longer one, at least that much.
"""

import contextlib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import numpy as np
from tqdm import tqdm

from chargpt.errors import NotWritten, what_to_do
from chargpt.files import SyncedFile, publishing, remove_left_behind
from chargpt.terminal import shown
from chargpt.text.cache import EncodedText

CHUNK = 2**22  # ids that are sorted together
OVERLAP = 2**16  # ids after a chunk that are sorted with it
NAME = "train.suffixes"  # change it whenever the same ids give another file
QUERIES = 4096  # queries searched at a time
COMPARED = 32  # ids of a query compared at a time


class SuffixIndex:
    """The places of any sequence in a text of `ids`. `suffixes` (n,) are those of `sorted_chunks`, one chunk after the other:
    places relative to the start of the chunk."""

    def __init__(self, ids: np.ndarray, suffixes: np.ndarray, *, chunk: int = CHUNK) -> None:
        self.ids = ids
        self._chunks = [(start, suffixes[start : start + chunk]) for start in range(0, len(ids), chunk)]

    def count(self, wanted: np.ndarray) -> int:
        """How often the sequence `wanted`, of at most OVERLAP ids, occurs in the text."""
        sequence, count = wanted.tolist(), 0
        for start, suffixes in self._chunks:

            def content(i: int, start: int = start, suffixes: np.ndarray = suffixes) -> list[int]:
                place = start + int(suffixes[i])
                return self.ids[place : place + len(sequence)].tolist()

            order = range(len(suffixes))
            count += bisect_right(order, sequence, key=content) - bisect_left(order, sequence, key=content)
        return count

    def longest_matches(self, query: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each place in `query` (m,), the length of the longest sequence from there on that stands in the text, and where.
        `query` may contain -1 for what occurs in no text. Returns lengths (m,) and places in the text (m,), int64; the place of
        a match of length 0 means nothing."""
        m = len(query)
        lengths, places = np.zeros(m, np.int64), np.zeros(m, np.int64)
        padded = np.append(query.astype(np.int64), -1)
        for first in range(0, m, QUERIES):
            at = np.arange(first, min(first + QUERIES, m))
            for start, suffixes in self._chunks:
                found, where = self._search(padded, at, start, suffixes)
                better = found > lengths[at]
                lengths[at[better]], places[at[better]] = found[better], where[better]
        return lengths, places

    def _search(self, query: np.ndarray, at: np.ndarray, start: int, suffixes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The longest matches in one chunk: a binary search for all of `query[at:]` at once. `low` is below the query and
        `high` is not; the longest match is at one of the two when they are neighbours. Both share at least the smaller of their
        matches with everything between them, which is not compared again."""
        low, high = np.full(len(at), -1), np.full(len(at), len(suffixes))
        low_match, high_match = np.zeros_like(at), np.zeros_like(at)
        while len(left := np.flatnonzero(high - low > 1)):
            middle = (low[left] + high[left]) // 2
            known = np.minimum(low_match[left], high_match[left])
            match, is_below = self._compare(query, at[left], start + suffixes[middle].astype(np.int64), known)
            below, above = left[is_below], left[~is_below]
            low[below], low_match[below] = middle[is_below], match[is_below]
            high[above], high_match[above] = middle[~is_below], match[~is_below]
        nearest = np.where(low_match >= high_match, low, high)
        return np.maximum(low_match, high_match), start + suffixes[nearest.clip(0, len(suffixes) - 1)].astype(np.int64)

    def _compare(
        self, query: np.ndarray, at: np.ndarray, places: np.ndarray, match: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """How many ids `query[at:]` and the text from `places` on have in common, and whether the text is the smaller one. At
        least `match` are in common. The end of the text is smaller than any id, and the end of the query too."""
        match, is_below = match.copy(), np.zeros(len(at), bool)
        left = np.arange(len(at))
        while len(left):
            ours = np.take(query, at[left, None] + match[left, None] + np.arange(COMPARED), mode="clip")
            where = places[left, None] + match[left, None] + np.arange(COMPARED)
            theirs = np.where(where < len(self.ids), np.take(self.ids, where, mode="clip").astype(np.int64), -2)
            differ = (ours != theirs) | (ours < 0)
            same = np.where(differ.any(axis=1), differ.argmax(axis=1), COMPARED)
            match[left] += same
            ended = same < COMPARED
            row = np.flatnonzero(ended)
            is_below[left[row]] = theirs[row, same[row]] < ours[row, same[row]]
            left = left[~ended]
        return match, is_below


def sort_suffixes(ids: np.ndarray, *, vocab_size: int) -> np.ndarray:
    """The places of the suffixes of `ids` (m,) in ascending order, int32 (m,). A suffix precedes those that continue it. By
    prefix doubling: sorted by their first h ids, suffixes that are equal so far are sorted by the rank of what follows the h
    ids, which sorts them by 2 h. After the first round, only suffixes that are still equal take part (Larsson and Sadakane,
    "Faster suffix sorting", 1999). Takes about 80 bytes for each id."""
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
        raise NotWritten(f"{shown(path)}: {error.strerror}; {what_to_do(error)}") from None
    index = open_index(text)
    assert index is not None, "it has just been written"
    return index
