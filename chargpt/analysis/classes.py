"""Classes of characters: letters, digits, punctuation, spaces, and the characters that begin a word or a line."""

import unicodedata
from collections.abc import Sequence

import numpy as np

CLASSES = (
    "first of a word",
    "rest of a word",
    "digit",
    "punctuation",
    "space",
    "newline",
    "symbol and other",
)
FIRST, REST, DIGIT, PUNCTUATION, SPACE, NEWLINE, OTHER = range(len(CLASSES))
# By the first letter of the category in Unicode. A mark belongs to the letter before it.
BY_CATEGORY = {"L": REST, "M": REST, "N": DIGIT, "P": PUNCTUATION, "Z": SPACE}


def classes_of(characters: Sequence[str]) -> np.ndarray:
    """The class of each character of a text, as its place in CLASSES, (T,) int64.

    A word is a run of letters and marks, so its first character is a letter that follows none. Scripts without spaces between
    words, such as Chinese, have runs of many words. Of a vocabulary of bytes, those beyond ASCII count as letters.
    """
    kinds = {character: _kind(character) for character in set(characters)}
    found = np.array([kinds[character] for character in characters], np.int64)
    is_letter = found == REST
    found[is_letter & ~np.append(False, is_letter[:-1])[: len(found)]] = FIRST
    return found


def _kind(character: str) -> int:
    if character in "\n\r":
        return NEWLINE
    if character == "\t":
        return SPACE
    if len(character) > 1:  # a byte of a character, such as \xe9
        return REST
    return BY_CATEGORY.get(unicodedata.category(character)[0], OTHER)
