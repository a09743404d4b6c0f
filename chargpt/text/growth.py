"""How the text of a run goes on from those of earlier runs. comparison.py finds it out."""

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from chargpt.text.document import TRAIN, VAL


@dataclass(frozen=True)
class Stretch:
    """A part of a text, which begins where the one before it ends."""

    end: int  # in characters
    split: int | None  # TRAIN, VAL, or None for neither
    is_new: bool  # no earlier run has read it


@dataclass(frozen=True, kw_only=True)
class Growth:
    """What earlier runs have read of a text: nothing that they have learned from validates here, or the other way round."""

    earlier: list[str] = field(default_factory=list)  # the fingerprints of their texts, the newest first
    stretches: list[Stretch] = field(default_factory=list)  # the whole text; none if it has little of theirs

    @property
    def is_possible(self) -> bool:
        """Whether a text can be divided like this."""
        ends, splits = [0, *(stretch.end for stretch in self.stretches)], {stretch.split for stretch in self.stretches}
        return all(a < b for a, b in itertools.pairwise(ends)) and splits <= {TRAIN, VAL, None}

    def describe(self) -> str:
        """How much of a text is new, and what of it is held out."""
        sizes = Counter[tuple[bool, int | None]]()
        for start, stretch in self._parts():
            sizes[stretch.is_new, stretch.split] += stretch.end - start
        known, new = (sum(size for (is_new, _), size in sizes.items() if is_new == wanted) for wanted in (False, True))
        held = f"{new:,} characters are new, {sizes[True, VAL]:,} of them for validation"
        return f"{held}; of {known:,} others, which the run has read, {sizes[False, VAL]:,} validate as before"

    def held_out(self, *, is_new: bool) -> list[slice]:
        """Where the validation split has what is new, or what an earlier run holds out too."""
        found, at = list[slice](), 0
        for start, stretch in self._parts():
            if stretch.split == VAL:
                size = stretch.end - start
                found += [slice(at, at + size)] * (stretch.is_new == is_new)
                at += size
        return found

    def _parts(self) -> Iterator[tuple[int, Stretch]]:
        """The stretches with their starts."""
        return zip([0, *(stretch.end for stretch in self.stretches)], self.stretches)
