"""Canonical equivalence: one letter in two of Unicode's forms, such as é as one character and as two.

Nobody sees which form a keyboard, a file system or another program has made. So what is typed means what is stored if it is
canonically equivalent, wherever the two are compared.
"""

import os
import unicodedata
from collections.abc import Iterable
from pathlib import Path


def canonical(text: str) -> str:
    """The form in which equivalent texts are equal (NFC)."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def stored_as(typed: str, stored: Iterable[str]) -> str:
    """What is `stored` in the place of `typed`: the same, or else an equivalent text; `typed` itself if there is neither."""
    stored, wanted = list(stored), canonical(typed)
    return typed if typed in stored else next((one for one in stored if canonical(one) == wanted), typed)


def known_form(text: str, known: frozenset[str]) -> str:
    """An equivalent text with fewer characters that are not `known`; `text` itself if there is none."""
    if text.isascii() or known.issuperset(text):
        return text
    apart = {character: unicodedata.normalize("NFD", character) for character in {*canonical(text)} - known}
    other = "".join(form if known.issuperset(form := apart.get(one, one)) else one for one in canonical(text))
    return min(text, other, key=lambda form: sum(character not in known for character in form))


def path_on_disk(path: str) -> str:
    """The path of an existing file or folder that `path` means; itself if there is none."""
    if path.isascii() or os.path.lexists(path):
        return path
    parent, name = os.path.split(path)
    parent = path_on_disk(parent) if parent else parent
    names = os.listdir(parent or ".") if os.path.isdir(parent or ".") else []
    return str(Path(parent, stored_as(name, names)))
