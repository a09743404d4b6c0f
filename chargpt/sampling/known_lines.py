"""The lines of a training text: whether a line that a model has written is one of them."""

import numpy as np

from chargpt.text.corpus import Corpus
from chargpt.text.suffix_array import OVERLAP, SuffixIndex, open_index
from chargpt.text.tokenizer import Tokenizer

CHUNK = 2**24  # ids searched at a time, whatever the size of the text


class KnownLines:
    """The lines of a text of `ids`. `"To be, or not to be" in known_lines` searches the text for that line, or its index."""

    def __init__(self, ids: np.ndarray, tokenizer: Tokenizer, index: SuffixIndex | None = None) -> None:
        self._ids, self._tokenizer, self._index = ids, tokenizer, index

    def __contains__(self, line: object) -> bool:
        """Whether `line`, given without its newline, is a whole line of the text."""
        wanted = self._tokenizer.ids_of(f"\n{line}\n")
        if (wanted < 0).any():
            return False
        wanted, n = wanted.astype(self._ids.dtype), len(wanted) - 1
        # The first line has no newline before it, and the last line may have none after it.
        if np.array_equal(wanted[1:], self._ids[:n]) or np.array_equal(wanted[:-1], self._ids[-n:]):
            return True
        if self._index is not None and len(wanted) <= OVERLAP:
            return self._index.count(wanted) > 0
        starts = range(0, len(self._ids), CHUNK)
        return any(_occurs(wanted, self._ids[start : start + CHUNK + len(wanted) - 1]) for start in starts)


def _occurs(wanted: np.ndarray, ids: np.ndarray) -> bool:
    """Whether the sequence `wanted` occurs in `ids`."""
    wanted_bytes, text, size = wanted.tobytes(), ids.tobytes(), ids.itemsize
    at = text.find(wanted_bytes)
    while at >= 0 and at % size:  # a match of bytes that does not begin at an id
        at = text.find(wanted_bytes, at + 1)
    return at >= 0


def known_lines(corpus: Corpus) -> KnownLines:
    """The lines of a training text, by its index if there is one: making it takes as long as hundreds of searches."""
    return KnownLines(corpus.train, corpus.tokenizer, open_index(corpus))
