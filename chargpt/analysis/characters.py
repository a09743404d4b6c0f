"""The characters of a vocabulary one by one: as text, and as a person can see them."""

import unicodedata
from collections.abc import Iterable

import numpy as np

from chargpt.terminal import escape_controls
from chargpt.text.tokenizer import Tokenizer

SHOWN = {" ": "␣", "\n": "↵", "\t": "⇥"}


def characters_of(ids: Iterable[int] | np.ndarray, tokenizer: Tokenizer) -> list[str]:
    """The character of each id. Of a vocabulary of bytes, those beyond ASCII are half characters: \\xe9 in four letters."""
    ids = np.asarray(ids if isinstance(ids, np.ndarray) else list(ids), np.int64)
    if tokenizer.characters is None:
        return [chr(id) if id < 128 else f"\\x{id:02x}" for id in ids.tolist()]
    return list(tokenizer.decode(ids))


def shown_character(character: str) -> str:
    """`character` as it can be seen alone: ␣ for a space, ↵ for a newline, \\x1b for a control, a mark on a dotted circle."""
    if character in SHOWN:
        return SHOWN[character]
    if unicodedata.category(character[0]) in ("Mn", "Mc", "Me"):
        return f"\N{DOTTED CIRCLE}{character}"
    if unicodedata.category(character[0]) in ("Zs", "Cf", "Cs", "Co", "Cn"):  # cannot be seen, or not everywhere
        return character.encode("unicode_escape").decode()
    return escape_controls(character)
