"""Whether a line that a model has written stands in the text that it learned from."""

import numpy as np

from chargpt.tokenizer import Tokenizer

CHUNK = 2**24  # ids looked through at a time, whatever the size of the text


class Known:
    """The lines of a text of `ids`, to be asked for one by one: `known("To be, or not to be")`."""

    def __init__(self, ids: np.ndarray, tokenizer: Tokenizer) -> None:
        self._ids, self._tokenizer = ids, tokenizer
        newline, _ = tokenizer.encode_known("\n")
        self._newline = newline.astype(ids.dtype)

    def __call__(self, line: str) -> bool:
        """Whether `line`, without its end, is a whole line of the text."""
        wanted = np.concatenate((self._newline, self._tokenizer.encode(line), self._newline)).astype(self._ids.dtype)
        if self._stands(wanted[1:], self._ids[: len(wanted) - 1]):  # the first line has no line before it
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
