"""How much of a text stands verbatim in the training text: its longest passages, and the share of its n-grams that are new."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chargpt.text.suffix_array import OVERLAP, SuffixIndex

SIZES = range(2, 33)  # of the n-grams


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A passage of a text that stands verbatim in the training text and is part of no longer one."""

    text: int  # which of the texts
    start: int  # where it begins in that text, in ids
    length: int
    place: int  # where it begins in the training text: one place, if there are several
    copies: int  # how often it stands there


class Novelty:
    """The matches of some texts, each a sequence of ids (T,), with the training text behind `index`.

    An id of -1 stands for a character that the training text does not have. A passage of more than 65,536 characters may be
    found in several pieces.
    """

    def __init__(self, texts: Sequence[np.ndarray], index: SuffixIndex) -> None:
        self._texts, self._index = texts, index
        self._matches = [index.longest_matches(text) for text in texts]

    @property
    def longest(self) -> int:
        """The length of the longest passage."""
        return max((int(lengths.max(initial=0)) for lengths, _ in self._matches), default=0)

    def novel_shares(self) -> dict[int, float]:
        """For each size n, the share of the n-grams of the texts that the training text does not have; sizes with none lack."""
        shares = {}
        for n in SIZES:
            novel = [lengths[: len(lengths) - n + 1] < n for lengths, _ in self._matches if len(lengths) >= n]
            if novel:
                shares[n] = float(np.concatenate(novel).mean())
        return shares

    def passages(self, most: int) -> list[Passage]:
        """The longest passages, at most `most`, longest first. None overlaps another by more than half of its length."""
        candidates = []
        for text, (lengths, _) in enumerate(self._matches):
            inside = np.append(False, lengths[:-1] > lengths[1:])  # the passage that begins one id earlier contains it
            candidates += [(-int(lengths[i]), text, int(i)) for i in np.flatnonzero((lengths > 0) & ~inside)]
        covered = [np.zeros(len(text), bool) for text in self._texts]
        chosen: list[Passage] = []
        for negative, text, start in sorted(candidates):
            length = -negative
            if len(chosen) == most:
                break
            if covered[text][start : start + length].mean() > 0.5:
                continue
            covered[text][start : start + length] = True
            chosen.append(self._passage(text, start, length))
        return chosen

    def _passage(self, text: int, start: int, length: int) -> Passage:
        copies = self._index.count(self._texts[text][start : start + min(length, OVERLAP)])
        place = int(self._matches[text][1][start])
        return Passage(text=text, start=start, length=length, place=place, copies=copies)
