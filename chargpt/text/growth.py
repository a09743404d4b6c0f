"""How the text of a run goes on from those of earlier runs. comparison.py finds it out."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from chargpt.text.document import TRAIN, VAL

KINDS = {"t": (TRAIN, False), "v": (VAL, False), "n": (None, False), "T": (TRAIN, True), "V": (VAL, True), "N": (None, True)}
MOST = 10**15  # characters of a stretch


@dataclass(frozen=True)
class Stretch:
    """A part of a text, which begins where the one before it ends."""

    size: int  # in characters
    split: int | None  # TRAIN, VAL, or None for neither
    is_new: bool  # no earlier run has read it


@dataclass(frozen=True, kw_only=True)
class Growth:
    """What earlier runs have read of a text: nothing that they have learned from validates here, or the other way round."""

    earlier: list[str] = field(default_factory=list)  # the fingerprints of their texts, the newest first
    stretches: list[Stretch] = field(default_factory=list)  # the whole text; none if it has little of theirs

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; `from_json` returns an equal growth. A stretch is a letter of KINDS and its size: t1200."""
        letters = {kind: letter for letter, kind in KINDS.items()}
        parts = (f"{letters[one.split, one.is_new]}{one.size}" for one in self.stretches)
        return {"earlier": self.earlier, "stretches": " ".join(parts)}

    @classmethod
    def from_json(cls, data: Any) -> "Growth":
        """The growth that `to_json` described, or an older program, with an object for each stretch. For anything else, raises
        ValueError, KeyError, AttributeError or TypeError."""
        earlier, found = data["earlier"], data["stretches"]
        if not all(isinstance(one, str) for one in earlier):
            raise ValueError("earlier: not names of texts")
        if isinstance(found, list):  # with the end of each in place of its size
            starts = [0, *(one["end"] for one in found)]
            sizes = [Stretch(one["end"] - start, one["split"], one["is_new"]) for start, one in zip(starts, found)]
            found = cls(stretches=sizes).to_json()["stretches"]
        stretches = [Stretch(int(part[1:]), *KINDS[part[0]]) for part in found.split()]
        if not all(0 < one.size < MOST for one in stretches):
            raise ValueError("stretches: not their sizes")
        return cls(earlier=earlier, stretches=stretches)

    def describe(self) -> str:
        """How much of a text is new, and what of it is held out."""
        sizes = Counter[tuple[bool, int | None]]()
        for stretch in self.stretches:
            sizes[stretch.is_new, stretch.split] += stretch.size
        known, new = (sum(size for (is_new, _), size in sizes.items() if is_new == wanted) for wanted in (False, True))
        held = f"{new:,} characters are new, {sizes[True, VAL]:,} of them for validation"
        return f"{held}; of {known:,} others, which the run has read, {sizes[False, VAL]:,} validate as before"

    def held_out(self, *, is_new: bool) -> list[slice]:
        """Where the validation split has what is new, or what an earlier run holds out too."""
        found, at = list[slice](), 0
        for stretch in (one for one in self.stretches if one.split == VAL):
            found += [slice(at, at + stretch.size)] * (stretch.is_new == is_new)
            at += stretch.size
        return found
