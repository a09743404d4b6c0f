"""Whether a line that a model has written stands in the text that it learned from."""

import numpy as np

from chargpt.text.tokenizer import Tokenizer

CHUNK = 2**24  # ids looked through at a time, whatever the size of the text


class Known:
    """The lines of a text of `ids`, to be asked for one by one: `known("To be, or not to be")`."""

    def __init__(self, ids: np.ndarray, tokenizer: Tokenizer) -> None:
        self._ids, self._tokenizer = ids, tokenizer

    def __call__(self, line: str) -> bool:
        """Whether `line`, without its end, is a whole line of the text."""
        wanted = self._tokenizer.ids_of(f"\n{line}\n")
        if (wanted < 0).any():
            return False
        wanted, n = wanted.astype(self._ids.dtype), len(wanted) - 1
        # The first line has no end before it, and the last one may have none behind it.
        if np.array_equal(wanted[1:], self._ids[:n]) or np.array_equal(wanted[:-1], self._ids[-n:]):
            return True
        steps = range(0, len(self._ids), CHUNK)
        return any(self._stands(wanted, self._ids[start : start + CHUNK + len(wanted) - 1]) for start in steps)

    def _stands(self, wanted: np.ndarray, ids: np.ndarray) -> bool:
        """Whether the ids `wanted` stand somewhere in `ids`, side by side."""
        sought, text, size = wanted.tobytes(), ids.tobytes(), ids.itemsize
        at = text.find(sought)
        while at >= 0 and at % size:  # between two ids
            at = text.find(sought, at + 1)
        return at >= 0
