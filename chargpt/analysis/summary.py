"""What `score` says about texts as a whole: losses and sizes, as a table and as plain JSON types."""

import math
from dataclasses import dataclass, field
from typing import Any

from chargpt.analysis.baselines import ABSENT
from chargpt.analysis.scored_text import Total
from chargpt.terminal import one_line

LABEL = 24  # columns
HEAD = f"{'':<{LABEL}}{'characters':>12}{'bytes':>12}{'size':>12}{'bits/char':>11}{'bits/byte':>11}{'loss':>9}"


@dataclass
class Summary:
    """Everything that `score` says about the texts as a whole."""

    facts: dict[str, Any]  # the run, its step and the stride
    texts: list[tuple[str, Total]] = field(default_factory=list)
    characters: int = 0  # of all texts, first characters included, as other programs see them
    bytes: int = 0
    sizes: dict[str, int | None] = field(default_factory=dict)  # of other programs, in bytes; None: not present
    ngram: tuple[int, float] | None = None  # order and bits per id

    @property
    def total(self) -> Total:
        """All texts together."""
        total = Total()
        for _, part in self.texts:
            total.add(part)
        return total

    def table(self) -> list[str]:
        """The lines of the table."""
        total = self.total
        rows = self.texts if len(self.texts) == 1 else [*self.texts, ("all texts", total)]
        lines = [HEAD, *(_row(label, part) for label, part in rows)]
        for name, size in self.sizes.items():
            label = f"{name:<{LABEL}}"
            if size is None:
                lines.append(f"{label}{ABSENT:>36}")
            else:
                per_character, per_byte = 8 * size / max(1, self.characters), 8 * size / max(1, self.bytes)
                lines.append(
                    f"{label}{self.characters:>12,}{self.bytes:>12,}{size:>12,}{per_character:>11.4f}{per_byte:>11.4f}"
                )
        if self.ngram is not None:
            order, bits = self.ngram
            bits_per_character = bits * total.ids / max(1, total.characters)
            bits_per_byte = bits * total.ids / max(1, total.bytes)
            label = f"order-{order} n-gram"
            lines.append(f"{label:<{LABEL + 36}}{bits_per_character:>11.4f}{bits_per_byte:>11.4f}{bits * math.log(2):>9.4f}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON types; bits are totals."""
        texts = [{"text": label, **_numbers(total)} for label, total in self.texts]
        ngram = None if self.ngram is None else {"order": self.ngram[0], "bits_per_id": round(self.ngram[1], 6)}
        return {**self.facts, "texts": texts, "total": _numbers(self.total), "compressed_bytes": self.sizes, "ngram": ngram}


def _row(label: str, total: Total) -> str:
    label = one_line(label)
    label = label if len(label) < LABEL else f"…{label[2 - LABEL :]}"
    return (
        f"{label:<{LABEL}}{total.characters:>12,}{total.bytes:>12,}{math.ceil(total.bits / 8):>12,}"
        f"{total.bits_per_character:>11.4f}{total.bits_per_byte:>11.4f}{total.loss:>9.4f}"
    )


def _numbers(total: Total) -> dict[str, Any]:
    return {
        "characters": total.characters,
        "bytes": total.bytes,
        "bits": round(total.bits, 4),
        "bits_per_character": round(total.bits_per_character, 6),
        "bits_per_byte": round(total.bits_per_byte, 6),
        "loss": round(total.loss, 6),
        "unknown": dict(total.unknown.most_common()),
    }
