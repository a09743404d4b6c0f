"""Each id is one character, and each character can be seen."""

import numpy as np

from chargpt.analysis.characters import characters_of, shown_character
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
