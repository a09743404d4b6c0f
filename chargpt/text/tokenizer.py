"""The vocabulary: text <-> ids, and what to do with a character it has never seen."""

import codecs
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from chargpt.terminal import UserError

CODE_POINTS = 0x110000  # how many Unicode has
FOLDED = "\N{REPLACEMENT CHARACTER}"  # what the id of folded characters decodes to
LOOK_ALIKES = str.maketrans("‘’‚‛“”„‐‑‒–—―−×•·\t\r\u2028\u2029", "''''\"\"\"-------x** \n\n\n")
LISTED = 8  # how many unknown characters an error message describes


class UnknownCharacters(UserError):
    """Text with characters that the vocabulary lacks; `characters` holds each of them once."""

    def __init__(self, message: str, characters: str) -> None:
        super().__init__(message)
        self.characters = characters


@dataclass(frozen=True, kw_only=True)
class Door:
    """What is done to a text before it becomes ids: the same to a prompt as to the text that was learned."""

    newlines: str = "keep"  # or "fold": \r\n and \r become \n
    normalize: str = "none"  # or "NFC", "NFKC"
    lowercase: bool = False

    @property
    def open(self) -> bool:
        """Whether every text passes unchanged."""
        return self == Door()

    def apply(self, text: str) -> str:
        """`text` as the model sees it."""
        if self.newlines == "fold":
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        if self.lowercase:
            text = text.lower()
        if self.normalize != "none":  # last, as what lower() makes need not be normalised
            text = unicodedata.normalize(self.normalize, text)
        return text

    def safe_cut(self, text: str) -> int:
        """Where a text that comes in pieces may be cut: apply(text[:i]) + apply(text[i:] + more) == apply(text + more).

        0 when there is no such place near the end.
        """
        if self.open:
            return len(text)
        for i in range(len(text) - 1, max(0, len(text) - 2**16), -1):
            # None of these combines with what stands before it, nor decides whether a sigma ends its word.
            if text[i] in " \t\r" or "\u4e00" <= text[i] <= "\u9fff" or (text[i] == "\n" and text[i - 1] != "\r"):
                return i
        return 0


class Tokenizer:
    """An immutable vocabulary: characters in the order of their code points, or the 256 bytes of UTF-8.

    When it is `folded`, its last id stands for every other character; that id must never be sampled.
    """

    def __init__(self, characters: str | None, *, folded: bool = False, door: Door = Door()) -> None:
        """`characters` in ascending order, each once; None means bytes."""
        self.characters = characters
        self.folded = folded
        self.door = door
        self.vocab_size = 256 if characters is None else len(characters) + folded
        self.never_sampled: tuple[int, ...] = (self.vocab_size - 1,) if folded else ()
        self.dtype = np.dtype(np.uint8 if self.vocab_size <= 2**8 else np.uint16 if self.vocab_size <= 2**16 else np.uint32)

    @classmethod
    def fit(cls, counts: np.ndarray, *, door: Door, min_count: int = 1, max_vocab: int = 0) -> "Tokenizer":
        """The vocabulary of a text whose code points stand in it `counts` (CODE_POINTS,) times.

        Characters with less than `min_count`, and the rarest beyond `max_vocab` ids (0: no limit), are folded.
        """
        seen = np.flatnonzero(counts)
        kept = seen[counts[seen] >= min_count]
        if max_vocab and len(kept) + (len(kept) < len(seen)) > max_vocab:
            kept = np.sort(kept[np.argsort(-counts[kept], kind="stable")][: max_vocab - 1])
        return cls("".join(map(chr, kept)), folded=len(kept) < len(seen), door=door)

    def table(self) -> np.ndarray:
        """Code point -> id, int32; the last entry is for all code points beyond. -1 means unknown."""
        points = code_points(self.characters)
        table = np.full(int(points[-1]) + 2, self.vocab_size - 1 if self.folded else -1, np.int32)
        table[points] = np.arange(len(points))
        return table

    def encode(self, text: str) -> np.ndarray:
        """The ids of `text`, int64, (length,). Raises UnknownCharacters."""
        text, ids = self._lookup(text)
        first = {text[i]: i for i in reversed(np.flatnonzero(ids < 0).tolist())}
        if first:
            places = {c: f"at character {first[c] + 1:,}" for c in sorted(first, key=first.get)}
            raise self.unknown("prompt", places, "change them, or skip them with --unknown skip")
        return ids

    def encode_known(self, text: str) -> tuple[np.ndarray, str]:
        """The ids of the characters that are known, int64, and those that were skipped, in order."""
        text, ids = self._lookup(text)
        return ids[ids >= 0], "".join(text[i] for i in np.flatnonzero(ids < 0))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`."""
        stream = self.stream()
        return stream.push(ids) + stream.finish()

    def stream(self) -> "DecodeStream":
        """A decoder that is fed ids as they come."""
        return DecodeStream(self)

    def unknown(self, where: str, places: dict[str, str], what_to_do: str) -> UnknownCharacters:
        """The error for characters the vocabulary lacks; `places` says where each is, or how often."""
        described = [f"{name(c)} {place} ({self._hint(c)})" for c, place in list(places.items())[:LISTED]]
        more = f" and {len(places) - LISTED:,} more" if len(places) > LISTED else ""
        listed = ", ".join(described)
        return UnknownCharacters(f"{where}: characters the model has not seen: {listed}{more}; {what_to_do}", "".join(places))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; `from_json` gives an equal tokenizer back."""
        return {"characters": self.characters, "folded": self.folded, **asdict(self.door)}

    @classmethod
    def from_json(cls, data: object) -> "Tokenizer":
        """The tokenizer that `to_json` described. Raises ValueError for everything else."""
        keys = {"characters", "folded", "newlines", "normalize", "lowercase"}
        if not isinstance(data, dict) or set(data) != keys:
            raise ValueError(f"vocabulary: not an object with the keys {', '.join(sorted(keys))}")
        characters, folded = data["characters"], data["folded"]
        if characters is not None:
            if not isinstance(characters, str) or not characters:
                raise ValueError("vocabulary.characters: neither characters nor null")
            if any(a >= b for a, b in zip(characters, characters[1:])):
                raise ValueError("vocabulary.characters: not in ascending order, each once")
            if re.search("[\ud800-\udfff]", characters):
                raise ValueError("vocabulary.characters: holds half a surrogate pair")
        if not isinstance(folded, bool) or (folded and characters is None):
            raise ValueError("vocabulary.folded: not true or false, or true for bytes, which cannot be folded")
        if data["newlines"] not in ("keep", "fold") or data["normalize"] not in ("none", "NFC", "NFKC"):
            raise ValueError("vocabulary.newlines, vocabulary.normalize: not keep or fold, and none, NFC or NFKC")
        if not isinstance(data["lowercase"], bool):
            raise ValueError("vocabulary.lowercase: not true or false")
        door = Door(newlines=data["newlines"], normalize=data["normalize"], lowercase=data["lowercase"])
        return cls(characters, folded=folded, door=door)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.characters, self.folded, self.door))

    def _lookup(self, text: str) -> tuple[str, np.ndarray]:
        """`text` behind the door, and its ids, -1 for unknown characters."""
        text = self.door.apply(text)
        return text, self.ids_of(text)

    def ids_of(self, text: str) -> np.ndarray:
        """The ids of a text that is behind the door already, as what was decoded is, int64; -1 for unknown characters."""
        if self.characters is None:
            try:
                # A command line hands on bytes that are not UTF-8 as surrogates; here they become those bytes again.
                content = text.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError as error:
                half = text[error.start]
                raise UnknownCharacters(f"prompt: {name(half)} is half a character; take it out", half) from None
            return np.frombuffer(content, np.uint8).astype(np.int64)
        return np.take(self.table(), code_points(text), mode="clip").astype(np.int64)

    def _hint(self, character: str) -> str:
        nearest = self.nearest(character)
        return f"nearest known: {name(nearest)}" if nearest else "nothing like it is known"

    def nearest(self, character: str) -> str | None:
        """The known character most like `character`: its other case, its base letter, its plain look-alike, its kind."""
        plain = unicodedata.normalize("NFKD", character)[0].translate(LOOK_ALIKES)
        for candidate in (character.swapcase(), plain, plain.swapcase()):
            if candidate in self.characters and len(candidate) == 1:
                return candidate
        kind = unicodedata.category(character)
        alike = [c for c in self.characters if unicodedata.category(c) == kind and kind[0] in "PSZN"]
        return min(alike, key=lambda c: abs(ord(c) - ord(character)), default=None)


class DecodeStream:
    """Ids to text, piece by piece: a character may need several bytes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        characters = tokenizer.characters
        self._points = None if characters is None else code_points(characters + FOLDED * tokenizer.folded)
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: Iterable[int]) -> str:
        """The text that `ids` complete."""
        ids = ids if isinstance(ids, np.ndarray) else np.fromiter(ids, np.int64)
        if self._points is None:
            return self._utf8.decode(ids.astype(np.uint8).tobytes())
        return self._points[ids].tobytes().decode("utf-32-le")

    def finish(self) -> str:
        """What is left at the end: U+FFFD for an unfinished character."""
        return self._utf8.decode(b"", final=True)


def code_points(text: str) -> np.ndarray:
    """The code points of `text`, uint32, (length,)."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def name(character: str) -> str:
    """A character for a message: 'é' U+00E9 LATIN SMALL LETTER E WITH ACUTE."""
    return f"{character!r} U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()
