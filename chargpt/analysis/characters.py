"""The characters of a text one by one: as a person can see them, and their classes (letters, digits, spaces and so on).

`CLASSES` and `classes_of` define the classes. losses.py computes the loss of each class.
"""

import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np

from chargpt.formatting import escape_controls
from chargpt.text.tokenizer import Tokenizer

SHOWN = {" ": "␣", "\n": "↵", "\t": "⇥"}
CLASSES = ("first of a word", "rest of a word", "digit", "punctuation", "space", "newline", "symbol and other")
FIRST, REST, DIGIT, PUNCTUATION, SPACE, NEWLINE, OTHER = range(len(CLASSES))  # their indices
# By the first letter of the category in Unicode. A mark belongs to the letter before it.
BY_CATEGORY = {"L": REST, "M": REST, "N": DIGIT, "P": PUNCTUATION, "Z": SPACE}
SPECIAL = {"\n": NEWLINE, "\r": NEWLINE, "\t": SPACE}


def characters_of(ids: Iterable[int] | np.ndarray, tokenizer: Tokenizer) -> list[str]:
    """The character of each id. In a vocabulary of bytes, those beyond ASCII are half characters: \\xe9 in four letters."""
    ids = np.asarray(ids if isinstance(ids, np.ndarray) else list(ids), np.int64)
    if tokenizer.characters is None:
        return [chr(byte) if byte < 128 else f"\\x{byte:02x}" for byte in ids.tolist()]
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


def classes_of(characters: Sequence[str]) -> np.ndarray:
    """The class of each character of a text, as its place in CLASSES, (T,) int64.

    A word is a run of letters and marks; its first letter is one that does not follow a letter. Scripts without spaces between
    words, such as Chinese, have runs of many words. In a vocabulary of bytes, those beyond ASCII count as letters.
    """
    by_category = {c: BY_CATEGORY.get(unicodedata.category(c[0])[0], OTHER) for c in set(characters)}
    kinds = {c: SPECIAL.get(c, REST if len(c) > 1 else kind) for c, kind in by_category.items()}  # longer: a byte such as \xe9
    found = np.array([kinds[character] for character in characters], np.int64)
    is_letter = found == REST
    found[is_letter & ~np.append(False, is_letter[:-1])[: len(found)]] = FIRST
    return found
