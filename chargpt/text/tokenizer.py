"""The vocabulary: converts text to ids and back, and reports characters that it does not contain."""

import codecs
import functools
import json
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import KW_ONLY, asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from chargpt.canonical import known_form
from chargpt.config import DataConfig, NormalForm
from chargpt.errors import Message, Option, UnknownCharacters, Words
from chargpt.text.normalization import TextNormalizer

CODE_POINTS = 0x110000  # the number of code points in Unicode
FOLDED = "\N{REPLACEMENT CHARACTER}"  # the id of folded characters decodes to this
# Characters that look alike, or stand for each other where one of them is not at hand; the plain one is the first.
LOOK_ALIKES = ('"“”„‟″«»', "'’‘‚‛′ʼ`´", "-‐‑‒–—―−", " \t", "\n\r\u2028\u2029", "x×", "*•·")
MAX_LISTED = 8  # unknown characters that an error message describes
CHANGE_OR_SKIP = Message("change them, or skip them with ", Option("unknown", "skip"))
# What a saved vocabulary has beside its characters, and what each may be.
SAVED = dict[str, Any](folded=[False, True], newlines=["keep", "fold"], lowercase=[False, True], normalize=get_args(NormalForm))


@dataclass(frozen=True)
class Tokenizer:
    """A vocabulary: characters in the order of their code points, or the 256 byte values."""

    characters: str | None  # in ascending order, each once; None means bytes
    _: KW_ONLY
    folded: bool = False  # rare characters were merged: the last id stands for every other character, and is never sampled
    normalizer: TextNormalizer = TextNormalizer()

    @functools.cached_property
    def vocab_size(self) -> int:
        """The number of ids."""
        return 256 if self.characters is None else len(self.characters) + self.folded

    @property
    def never_sampled(self) -> tuple[int, ...]:
        """The ids that a model never writes."""
        return (self.vocab_size - 1,) * self.folded

    @property
    def first_id(self) -> int:
        """The id that a text without a prompt starts from: a newline, or the first id that may be sampled if there is none."""
        newline, _ = self.encode_known("\n")
        return next(int(i) for i in (*newline, *range(self.vocab_size)) if i not in self.never_sampled)

    @property
    def dtype(self) -> np.dtype:
        """The smallest numbers that hold the ids."""
        return np.min_scalar_type(self.vocab_size - 1)

    @classmethod
    def fit(
        cls, counts: np.ndarray, *, normalizer: TextNormalizer, min_count: int = 1, max_vocab: int = 0, known: str = ""
    ) -> "Tokenizer":
        """The vocabulary of a text. `counts` (CODE_POINTS,) holds how often each code point occurs in it. Characters that occur
        less than `min_count` times, and the rarest beyond `max_vocab` ids (0: no limit), are folded. The characters `known`,
        fewer than `max_vocab`, are in the vocabulary too, whether they occur or not."""
        seen, always = np.flatnonzero(counts > 0), np.unique(code_points(known))
        more = np.setdiff1d(seen[counts[seen] >= min_count], always)
        if max_vocab and len(always) + len(more) + (len(np.union1d(seen, always)) > len(always) + len(more)) > max_vocab:
            more = more[np.argsort(-counts[more], kind="stable")][: max(0, max_vocab - 1 - len(always))]
        kept = np.union1d(always, more)
        return cls("".join(map(chr, kept)), folded=not np.isin(seen, kept).all(), normalizer=normalizer)

    def knowing(self, characters: str) -> "Tokenizer":
        """The vocabulary with these characters too. Raises ValueError for bytes, and if some would no longer be folded."""
        if self.characters is None or self.folded:
            raise ValueError("the text has to be read again")
        return replace(self, characters="".join(sorted({*self.characters, *characters})))

    def table(self) -> np.ndarray:
        """Code point -> id, int32; the last entry is for all code points beyond. -1 means unknown."""
        assert self.characters is not None, "bytes are their own ids"
        points = code_points(self.characters)
        table = np.full(int(points[-1]) + 2, self.vocab_size - 1 if self.folded else -1, np.int32)
        table[points] = np.arange(len(points))
        return table

    def encode(self, text: str, *, name: str = "prompt", what_to_do: Words = CHANGE_OR_SKIP) -> np.ndarray:
        """The ids of `text` after normalisation, int64, (n_ids,). Raises UnknownCharacters, which calls the text `name`."""
        text = self.normalized(text)
        ids = self.ids_of(text, name)
        if unknown := dict.fromkeys(_characters(text, ids < 0)):
            raise self.unknown(name, {one: f"at character {text.index(one) + 1:,}" for one in unknown}, what_to_do)
        return ids

    def encode_known(self, text: str) -> tuple[np.ndarray, str]:
        """The ids of the known characters of `text` after normalisation, int64, and the unknown characters in order."""
        text = self.normalized(text)
        ids = self.ids_of(text)
        return ids[ids >= 0], _characters(text, ids < 0)

    def folded_in(self, text: str) -> str:
        """The characters of `text` after normalisation that are read as the folded character, in order."""
        text = self.normalized(text) if self.folded else ""
        return _characters(text, self.ids_of(text) == self.vocab_size - 1)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`."""
        stream = DecodeStream(self)
        return stream.push(ids) + stream.finish()

    def unknown(self, where: str, positions: dict[str, str], what_to_do: Words) -> UnknownCharacters:
        """The error for unknown characters; `positions` says where each one occurs, or how often."""
        listed = []
        for character, position in [*positions.items()][:MAX_LISTED]:
            nearest = self.nearest(character)
            hint = f" (nearest known: {character_name(nearest)})" if nearest else ""
            listed.append(f"{character_name(character)} {position}{hint}")
        more = f" and {len(positions) - MAX_LISTED:,} more" if len(positions) > MAX_LISTED else ""
        return UnknownCharacters(f"{where}: characters that the model has never seen: {', '.join(listed)}{more}; ", what_to_do)

    def settings(self, config: DataConfig) -> DataConfig:
        """`config` for reading a text with this vocabulary and its normaliser. If \\r is unknown, line ends become \\n, unless
        `config` keeps them. In a vocabulary with an id of rare characters, \\r has that id."""
        folds = config.newlines != "keep" and self._has_no_return and not self.folded
        normalizer = asdict(replace(self.normalizer, newlines="fold") if folds else self.normalizer)
        vocabulary: Literal["characters", "bytes"] = "bytes" if self.characters is None else "characters"
        return replace(config, vocabulary=vocabulary, min_count=1, max_vocab=0, **normalizer)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types; `from_json` returns an equal tokenizer."""
        return {"characters": self.characters, "folded": self.folded, **asdict(self.normalizer)}

    @classmethod
    def from_json(cls, data: object) -> "Tokenizer":
        """The tokenizer that `to_json` described. Raises ValueError for anything else."""
        if not isinstance(data, dict) or set(data) != {"characters", *SAVED}:
            raise ValueError(f"vocabulary: not an object with the keys characters, {', '.join(SAVED)}")
        for name, allowed in SAVED.items():
            if not any(data[name] == one and type(data[name]) is type(one) for one in allowed):
                raise ValueError(f"vocabulary.{name}: not one of {json.dumps(allowed)}")
        characters, folded = data["characters"], data["folded"]
        are_characters = isinstance(characters, str) and bool(characters) and not re.search("[\ud800-\udfff]", characters)
        if characters is not None and not (are_characters and all(a < b for a, b in zip(characters, characters[1:]))):
            raise ValueError("vocabulary.characters: not null, and not whole characters in ascending order, each once")
        if folded and characters is None:
            raise ValueError("vocabulary.folded: true for bytes, which cannot be folded")
        normalizer = TextNormalizer(**{name: data[name] for name in SAVED if name != "folded"})
        return cls(characters, folded=folded, normalizer=normalizer)

    def normalized(self, text: str) -> str:
        """`text` after normalisation, in the equivalent form that is known. In a vocabulary without \\r, line ends are \\n."""
        text = (replace(self.normalizer, newlines="fold") if self._has_no_return else self.normalizer).apply(text)
        return text if self.characters is None else known_form(text, self._known)

    @functools.cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.characters or "")

    @property
    def _has_no_return(self) -> bool:
        return self.characters is not None and "\r" not in self.characters

    def ids_of(self, text: str, name: str = "prompt") -> np.ndarray:
        """The ids of a text that is already normalised, such as decoded ids, int64; -1 for unknown characters. Raises
        UnknownCharacters, which calls the text `name`, for half a character in a vocabulary of bytes."""
        if self.characters is None:
            try:
                # The command line represents bytes that are not UTF-8 as surrogates; this restores those bytes.
                content = text.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError as error:
                what = f"{character_name(text[error.start])} is half a character; remove it"
                raise UnknownCharacters(f"{name}: {what}") from None
            return np.frombuffer(content, np.uint8).astype(np.int64)
        return np.take(self.table(), code_points(text), mode="clip").astype(np.int64)

    def nearest(self, character: str) -> str | None:
        """A known character similar to `character`: its other case, base letter, plain look-alike, or one of its category."""
        known = self.characters or ""
        base = (unicodedata.normalize("NFKD", character).lstrip(" ") or " ")[0]  # an accent alone is one on a space
        group = next((group for group in LOOK_ALIKES if character in group or base in group), base)
        for candidate in (character.swapcase(), base, *group, base.swapcase()):
            if candidate in known and len(candidate) == 1:
                return candidate
        category = unicodedata.category(character)
        alike = [c for c in known if unicodedata.category(c) == category and category[0] in "PSZN"]
        return min(alike, key=lambda c: abs(ord(c) - ord(character)), default=None)


class DecodeStream:
    """Converts ids to text a few at a time. With a vocabulary of bytes, a character may need several ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        characters = tokenizer.characters
        self._points = None if characters is None else code_points(characters + FOLDED * tokenizer.folded)
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, ids: Iterable[int]) -> str:
        """The characters that `ids` complete."""
        ids = ids if isinstance(ids, np.ndarray) else np.fromiter(ids, np.int64)
        if self._points is None:
            return self._utf8.decode(ids.astype(np.uint8).tobytes())
        return self._points[ids].tobytes().decode("utf-32-le")

    def finish(self) -> str:
        """The rest at the end: U+FFFD for an unfinished character."""
        return self._utf8.decode(b"", final=True)


def _characters(text: str, chosen: np.ndarray) -> str:
    return "".join(text[i] for i in np.flatnonzero(chosen))


def code_points(text: str) -> np.ndarray:
    """The code points of `text`, uint32, (n_characters,)."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def utf8_lengths(points: np.ndarray) -> np.ndarray:
    """The number of bytes of each code point in UTF-8, int64; 1 for the surrogates that stand for bytes which are not UTF-8."""
    lengths = 1 + (points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000)
    return np.where((points >= 0xDC80) & (points <= 0xDCFF), 1, lengths)


def character_name(character: str) -> str:
    """A character for a message: 'é' U+00E9 LATIN SMALL LETTER E WITH ACUTE."""
    return f"{character!r} U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()
