"""Each character has one class, by its category and the character before it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from chargpt.analysis.classes import CLASSES, classes_of


def names(text: str | list[str]) -> list[str]:
    return [CLASSES[number] for number in classes_of(text)]


def test_characters_have_their_classes():
    first, rest, digit, mark, space, newline, other = CLASSES
    assert names("Ab, c1\n\t+") == [first, rest, mark, space, first, digit, newline, space, other]
    assert names("e\u0301a") == [first, rest, rest]
    assert names(["\\xc3", "\\xa9", "a", "1"]) == [first, rest, rest, digit]
    assert names("") == []


@settings(deadline=None)
@given(st.text(max_size=30))
def test_a_word_has_one_first_character(text):
    found = names(text)
    letters = [name in CLASSES[:2] for name in found]
    assert found.count(CLASSES[0]) == sum(is_letter and not before for is_letter, before in zip(letters, [False, *letters]))
