"""The vocabulary: text <-> ids, and what to do with a character it has never seen."""

import codecs
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from chargpt.errors import UserError

NEWLINES = ("keep", "fold")
NORMALIZE = ("none", "NFC", "NFKC")
CODE_POINTS = 0x110000  # Unicode's size
FOLDED = "\N{REPLACEMENT CHARACTER}"  # what a folded character decodes to


class UnknownCharacters(UserError):
    """Text with characters that the vocabulary lacks. `characters` holds each of them once, in order of appearance."""

    def __init__(self, message: str, characters: str) -> None:
        super().__init__(message)
        self.characters = characters


@dataclass(frozen=True, kw_only=True)
class Door:
    """What is done to a text before it becomes ids, training text and prompts alike."""

    newlines: str = "keep"
    normalize: str = "none"
    lowercase: bool = False

    @property
    def open(self) -> bool:
        """Whether text passes unchanged."""
        return self == Door()

    def apply(self, text: str) -> str:
        """`text` with line ends folded to \\n, lower-cased and normalised, as far as this door asks for it."""
        if self.newlines == "fold":
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        if self.lowercase:
            text = text.lower()
        if self.normalize != "none":  # last, since lower-casing can leave a text that is not normalised
            text = unicodedata.normalize(self.normalize, text)
        return text


class Tokenizer:
    """An immutable vocabulary: characters sorted by code point, or the 256 bytes of UTF-8.

    With `folded`, one more id stands for every character that is not in `characters`; it must never be sampled.
    """

    def __init__(self, characters: str | None, *, folded: bool = False, door: Door = Door()) -> None:
        """`characters` in ascending order, or None for bytes."""
        self.characters = characters
        self.door = door
        self.folded = folded
        self.vocab_size = 256 if characters is None else len(characters) + folded
        self.never_sampled: tuple[int, ...] = (self.vocab_size - 1,) if folded else ()

    @property
    def dtype(self) -> np.dtype:
        """The smallest unsigned integers that hold every id."""
        return np.dtype(np.uint8 if self.vocab_size <= 256 else np.uint16 if self.vocab_size <= 65536 else np.uint32)

    def table(self) -> np.ndarray:
        """Code point -> id, int32; the last entry stands for every code point beyond. -1 marks unknown characters."""
        points = code_points(self.characters)
        table = np.full(int(points.max(initial=0)) + 2, self.vocab_size - 1 if self.folded else -1, dtype=np.int32)
        table[points] = np.arange(len(points), dtype=np.int32)
        return table

    def encode(self, text: str) -> np.ndarray:
        """The ids of `text`, int64, after the door. Raises UnknownCharacters."""
        if self.characters is None:
            return np.frombuffer(self.door.apply(text).encode("utf-8", "surrogatepass"), np.uint8).astype(np.int64)
        text = self.door.apply(text)
        ids = self._lookup(text)
        if (ids < 0).any():
            raise self.unknown("prompt", text, ids)
        return ids

    def encode_known(self, text: str) -> tuple[np.ndarray, str]:
        """The ids of what is known, int64, and the characters that were skipped, in order."""
        if self.characters is None:
            return self.encode(text), ""
        text = self.door.apply(text)
        ids = self._lookup(text)
        return ids[ids >= 0], "".join(text[i] for i in np.flatnonzero(ids < 0))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`."""
        stream = self.stream()
        return stream.push(ids) + stream.finish()

    def stream(self) -> "DecodeStream":
        """A decoder fed piece by piece; in bytes mode a character may need several ids."""
        return DecodeStream(self)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; `from_json` gives an equal tokenizer back."""
        return {
            "characters": self.characters,
            "folded": self.folded,
            "newlines": self.door.newlines,
            "normalize": self.door.normalize,
            "lowercase": self.door.lowercase,
        }

    @classmethod
    def from_json(cls, data: object) -> "Tokenizer":
        """The tokenizer that `to_json` wrote. Raises ValueError for anything else."""
        keys = {"characters", "folded", "newlines", "normalize", "lowercase"}
        if not isinstance(data, dict) or set(data) != keys:
            raise ValueError(f"vocabulary: not an object with the keys {', '.join(sorted(keys))}")
        characters = data["characters"]
        if characters is not None:
            if not isinstance(characters, str) or not characters or len(characters) > CODE_POINTS:
                raise ValueError("vocabulary.characters: not a string of characters, nor null")
            if any(a >= b for a, b in zip(characters, characters[1:])):
                raise ValueError("vocabulary.characters: not in ascending order, each once")
            if re.search("[\ud800-\udfff]", characters):
                raise ValueError("vocabulary.characters: holds a surrogate")
        for key in ("folded", "lowercase"):
            if not isinstance(data[key], bool):
                raise ValueError(f"vocabulary.{key}: not true or false")
        if data["folded"] and characters is None:
            raise ValueError("vocabulary.folded: true for bytes, which are never folded")
        for key, allowed in (("newlines", NEWLINES), ("normalize", NORMALIZE)):
            if data[key] not in allowed:
                raise ValueError(f"vocabulary.{key}: not one of {', '.join(allowed)}")
        door = Door(newlines=data["newlines"], normalize=data["normalize"], lowercase=data["lowercase"])
        return cls(characters, folded=data["folded"], door=door)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.characters, self.folded, self.door))

    def _lookup(self, text: str) -> np.ndarray:
        return np.take(self.table(), code_points(text), mode="clip").astype(np.int64)

    def unknown(self, where: str, text: str, ids: np.ndarray) -> UnknownCharacters:
        first: dict[str, int] = {}
        for i in np.flatnonzero(ids < 0):
            first.setdefault(text[i], int(i))
        listed = [f"{describe(c)} at character {i:,} ({self._hint(c)})" for c, i in list(first.items())[:8]]
        more = f" and {len(first) - 8:,} more" if len(first) > 8 else ""
        message = f"{where}: characters the model has never seen: {', '.join(listed)}{more}; change them"
        return UnknownCharacters(message, "".join(first))

    def _hint(self, character: str) -> str:
        near = self.nearest(character)
        return f"nearest known {describe(near)}" if near else "nothing like it is known"

    def nearest(self, character: str) -> str | None:
        """The known character most like `character`: its other case, its base letter, its plain look-alike."""
        decomposed = unicodedata.normalize("NFKD", character)
        for candidate in (character.swapcase(), decomposed[0], decomposed[0].swapcase()):
            if len(candidate) == 1 and candidate in self.characters:
                return candidate
        return None


class DecodeStream:
    """Ids to text, a piece at a time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._characters = tokenizer.characters and tokenizer.characters + FOLDED * tokenizer.folded
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: Iterable[int]) -> str:
        """The text that is complete with `ids`."""
        if self._characters is None:
            return self._utf8.decode(bytes(ids))
        return "".join(self._characters[i] for i in ids)

    def finish(self) -> str:
        """What is left; in bytes mode an unfinished character becomes U+FFFD."""
        return self._utf8.decode(b"", True)


def code_points(text: str) -> np.ndarray:
    """The code points of `text`, uint32; lone surrogates (which argv can hold) included."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def describe(character: str) -> str:
    """A character for an error message: 'é' U+00E9 LATIN SMALL LETTER E WITH ACUTE."""
    name = unicodedata.name(character, "")
    return f"{character!r} U+{ord(character):04X} {name}".rstrip()
