"""Each id is one character, which can be seen and has one class."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chargpt.analysis.characters import CLASSES, characters_of, classes_of, shown_character
from chargpt.text.tokenizer import Tokenizer


def test_each_id_is_one_character():
    tokenizer = Tokenizer("\n ab", folded=True)
    assert characters_of([0, 1, 2, 3, 4], tokenizer) == ["\n", " ", "a", "b", "\ufffd"]
    assert characters_of(np.array([97, 195, 169, 10], np.uint8), Tokenizer(None)) == ["a", "\\xc3", "\\xa9", "\n"]


def test_every_character_can_be_seen():
    shown = {c: shown_character(c) for c in " \n\t\r\x1b\u202e\u0301a中\u3000\U000e0001"}
    assert shown == {
        " ": "␣", "\n": "↵", "\t": "⇥", "\r": "\\r", "\x1b": "\\x1b", "\u202e": "\\u202e", "\u0301": "◌\u0301",
        "a": "a", "中": "中", "\u3000": "\\u3000", "\U000e0001": "\\U000e0001",
    }  # fmt: skip


def names(text: str | list[str]) -> list[str]:
    return [CLASSES[number] for number in classes_of(text)]


def test_characters_have_their_classes():
    first, rest, digit, mark, space, newline, other = CLASSES
    assert names("Ab, c1\n\t+") == [first, rest, mark, space, first, digit, newline, space, other]
    assert names("e\u0301a") == [first, rest, rest]
    assert names(["\\xc3", "\\xa9", "a", "1"]) == [first, rest, rest, digit]
    assert names("") == []


@given(st.text("aÄ\u0301 1.\n+中", max_size=30))
def test_a_word_has_one_first_character(text):
    found = names(text)
    letters = [name in CLASSES[:2] for name in found]
    assert found.count(CLASSES[0]) == sum(is_letter and not before for is_letter, before in zip(letters, [False, *letters]))
