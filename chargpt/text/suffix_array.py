"""An index of the training split of an encoded text: it finds the longest match of any sequence. It is a suffix array ("Suffix
arrays: a new method for on-line string searches", Manber and Myers 1990) of each CHUNK of the text, beside the ids in the
cache: `train.suffixes` holds, for each chunk, the places of its suffixes in ascending order. Chunks bound the memory of making
it to about 0.4 GB, whatever the size of the text. A chunk is sorted together with the OVERLAP ids that follow it, so that every
match of up to OVERLAP ids is found; of a longer one, at least that much."""

import contextlib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from chargpt.errors import NotWritten, Problem, what_to_do
from chargpt.files import SyncedFile, publishing, remove_left_behind
from chargpt.formatting import shown
from chargpt.text.cache import EncodedText
from chargpt.text.facts import grams
from chargpt.text.source import mapped_numbers

CHUNK = 2**22  # ids that are sorted together
OVERLAP = 2**16  # ids after a chunk that are sorted with it
# Training makes the index of a text of so many characters, once, in about a second; of a longer one, only `trace` does.
MAX_INDEXED = 2**21
NAME = "train.suffixes"  # change it whenever the same ids give another file
QUERIES = 4096  # queries searched at a time
COMPARED = 16  # ids of a query compared at a time


class _Chunk(NamedTuple):
    start: int  # in the text
    suffixes: np.ndarray  # in ascending order, relative to the start

    def places(self, numbers: np.ndarray) -> np.ndarray:
        """Where the suffixes with these numbers in the order begin in the text, int64."""
        return self.start + self.suffixes[numbers.clip(0, len(self.suffixes) - 1)].astype(np.int64)


class SuffixIndex:
    """The places of any sequence in a text of `ids`; `suffixes` (n,) are those of its `sorted_chunks`, one after the other."""

    def __init__(self, ids: np.ndarray, suffixes: np.ndarray, *, chunk: int = CHUNK) -> None:
        self.ids = ids
        self._chunks = [_Chunk(start, suffixes[start : start + chunk]) for start in range(0, len(ids), chunk)]

    def count(self, wanted: np.ndarray) -> int:
        """How often the sequence `wanted`, of at most OVERLAP ids, occurs in the text."""
        sequence, count = wanted.tolist(), 0
        for start, suffixes in self._chunks:

            def content(place: int, start: int = start) -> list[int]:
                return self.ids[start + int(place) :][: len(sequence)].tolist()

            count += bisect_right(suffixes, sequence, key=content) - bisect_left(suffixes, sequence, key=content)
        return count

    def longest_matches(self, query: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each place in `query` (m,), the length of the longest sequence from there on that stands in the text, and where.
        `query` may contain -1 for what occurs in no text. Returns lengths (m,) and places in the text (m,), int64."""
        best, ended = np.zeros((2, len(query)), np.int64), np.append(query.astype(np.int64), -1)
        for at in np.array_split(np.arange(len(query)), len(query) // QUERIES + 1):
            for chunk in self._chunks:
                match, neighbours = self._search(ended, at, chunk)
                found = match.max(axis=0), chunk.places(np.where(match[0] >= match[1], *neighbours))
                best[:, at] = np.where(found[0] > best[0, at], found, best[:, at])
        return best[0], best[1]

    def _search(self, query: np.ndarray, at: np.ndarray, chunk: _Chunk) -> tuple[np.ndarray, np.ndarray]:
        """The neighbours of each of `query[at:]` in the order of a chunk, (2, m), the last one below it and the first that is
        not, after how many ids they have in common with it. One of them is the longest match. A binary search for all at once:
        two suffixes share at least the smaller of their matches with everything between them, which is not compared again."""
        neighbours = np.repeat([[-1], [len(chunk.suffixes)]], len(at), axis=1)
        match = np.zeros_like(neighbours)
        while len(left := np.flatnonzero(neighbours[1] - neighbours[0] > 1)):
            middle = neighbours[:, left].sum(axis=0) // 2
            known, side = self._compare(query, at[left], chunk.places(middle), match[:, left].min(axis=0))
            neighbours[side, left], match[side, left] = middle, known
        return match, neighbours

    def _compare(
        self, query: np.ndarray, at: np.ndarray, places: np.ndarray, match: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """How many ids `query[at:]` and the text from `places` on have in common, at least `match`, and 0 where the text is the
        smaller one, 1 elsewhere. The end of the text is smaller than any id, and the end of the query too."""
        match, left = match.copy(), np.arange(len(at))
        while len(left):
            offset = match[left, None] + np.arange(COMPARED)
            same = self._ids_at(places[left, None] + offset) == np.take(query, at[left, None] + offset, mode="clip")
            is_whole = same.all(axis=1)
            match[left] += np.where(is_whole, COMPARED, same.argmin(axis=1))
            left = left[is_whole]
        return match, (self._ids_at(places + match) > query[at + match]).astype(np.int64)

    def _ids_at(self, places: np.ndarray) -> np.ndarray:
        """The ids at some places, int64; -2, which no query has, behind the end of the text."""
        return np.where(places < len(self.ids), np.take(self.ids, places, mode="clip").astype(np.int64), -2)


def sort_suffixes(ids: np.ndarray, *, vocab_size: int) -> np.ndarray:
    """The places of the suffixes of `ids` (m,) in ascending order, int32 (m,). A suffix precedes those that continue it. By
    prefix doubling: sorted by their first h ids, suffixes that are equal so far are sorted by the rank of what follows the h
    ids, which sorts them by 2 h. After the first round, only suffixes that are still equal take part (Larsson and Sadakane,
    "Faster suffix sorting", 1999). Takes about 80 bytes for each id."""
    m, h = len(ids), 63 // int(vocab_size).bit_length()  # as many ids as fit into 63 bits
    keys = grams(np.append(ids.astype(np.int64) + 1, np.zeros(h - 1, np.int64)), h, vocab_size + 1)  # 0 is the end
    order, left = np.arange(m, dtype=np.int32), np.arange(m)
    rank = np.full(m + 1, -1, np.int32)  # of each suffix: the place in `order` where its group of equal ones begins
    while len(left):
        by_key = np.argsort(keys)
        order[left], keys = order[left[by_key]], keys[by_key]
        is_new = np.append(True, keys[1:] != keys[:-1])
        rank[order[left]] = np.maximum.accumulate(np.where(is_new, left, 0))
        left = left[~(is_new & np.append(is_new[1:], True))]  # places in `order` of groups with several members
        keys = rank[order[left]].astype(np.int64) * (m + 1) + rank.take(order[left].astype(np.int64) + h, mode="clip") + 1
        h *= 2
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
            suffixes = mapped_numbers(text.folder / NAME, np.dtype("<u4"))
            return SuffixIndex(text.train, suffixes) if len(suffixes) == len(text.train) else None
    return None


def open_or_make_index(text: EncodedText) -> SuffixIndex:
    """The index of the training split; it is made and kept if there is none yet. Raises UserError if it cannot be written."""
    if (index := open_index(text)) is None:
        assert text.folder is not None, "only an encoded text in the cache has an index"
        path = text.folder / NAME
        try:
            remove_left_behind(text.folder, re.compile(re.escape(NAME)))
            bar = tqdm(desc="indexing", total=len(text.train), unit="B", unit_scale=True, delay=1, leave=False, disable=None)
            with publishing(path) as aside, SyncedFile(aside) as file, bar:
                for suffixes in sorted_chunks(text.train, vocab_size=text.tokenizer.vocab_size):
                    file.write(suffixes.data.cast("B"))
                    bar.update(len(suffixes))
        except OSError as error:
            raise NotWritten.of(error, f"{shown(path)}: {error.strerror}; {what_to_do(error)}") from None
        index = open_index(text)
    if index is None:  # too many open files
        raise NotWritten(f"{NAME}: cannot be opened in {shown(text.folder or '')}; raise the limit of open files (ulimit -n)")
    return index


def index_for_training(text: EncodedText) -> SuffixIndex | None:
    """The index of the training split; None if there is none, making it would take long, or the cache cannot be written."""
    try:
        return open_or_make_index(text) if len(text.train) <= MAX_INDEXED else open_index(text)
    except Problem:  # a training does not need it
        return None


def longest_copy(corpus: EncodedText, text: str) -> int | None:
    """The length of the longest passage of `text` that occurs in the training split; None without a text or an index."""
    index = index_for_training(corpus) if text else None
    return None if index is None else int(index.longest_matches(corpus.tokenizer.ids_of(text))[0].max(initial=0))
