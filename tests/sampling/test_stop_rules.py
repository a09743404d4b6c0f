import itertools
from unittest.mock import patch

import pytest
from helpers import clear_model
from hypothesis import given
from hypothesis import strategies as st

from chargpt.sampling import stop_rules
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.stop_rules import StopRules, too_few_lines
from chargpt.sampling.text_generator import TextGenerator
from chargpt.sampling.torch_texts import torch_writer
from chargpt.text.normalization import TextNormalizer
from chargpt.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer("\nabcdxy")


def rules_of(*, tokenizer: Tokenizer = TOKENIZER, excluded=None, begun: str = "", **options) -> StopRules:
    return StopRules(tokenizer, SamplingOptions(**options), excluded=excluded, begun=begun)


def pieces(rules: StopRules, text: str) -> list[str]:
    """What each character of `text` releases, and at last the finish."""
    released = [rules.push(token_id) for token_id in TOKENIZER.encode(text).tolist()] + [rules.finish()]
    return ["".join(character.text for character in characters) for characters in released]


@pytest.mark.parametrize(
    ("stops", "text", "written"),
    [
        (["abc"], "xxabcyy", "xx"),
        (["aab"], "aaab", "a"),  # the third a revives the prefix "aa"
        (["abab"], "ababab", ""),
        (["abac"], "ababac", "ab"),
        (["abc"], "xab", "xab"),  # held back, then no more came
        (["b", "abc"], "abc", "a"),
        (["abc", "b"], "xabc", "xa"),
        (["abcd", "bc"], "abcd", "a"),  # the first to be complete
        (["bcd", "cd"], "abcd", "a"),  # complete at once: the one that began first
        ([], "abc", "abc"),
    ],
)
def test_stop_texts_and_what_only_looks_like_one(stops, text, written):
    rules = rules_of(stop=stops)
    assert "".join(pieces(rules, text)) == written
    assert rules.stopped == (written != text)


@given(st.text("ab", max_size=20), st.text("ab", min_size=1, max_size=4))
def test_a_stop_text_cuts_where_it_first_appears(text, stop):
    before, found, _ = text.partition(stop)
    for keep_stop in (False, True):
        assert "".join(pieces(rules_of(stop=stop, keep_stop=keep_stop), text)) == before + found * keep_stop


def test_text_is_given_out_as_soon_as_it_cannot_be_a_stop_text():
    assert pieces(rules_of(stop="aab"), "xaaada") == ["x", "", "", "a", "aad", "", "a"]
    assert pieces(rules_of(), "xaa") == ["x", "a", "a", ""]


@pytest.mark.parametrize(
    ("lines", "written"), [(1, "ab"), (2, "ab\n"), (3, "ab\n\ncd"), (4, "ab\n\ncd\nx"), (0, "ab\n\ncd\nx")]
)
def test_a_number_of_lines_ends_with_the_last_one(lines, written):
    rules = rules_of(lines=lines)
    assert "".join(pieces(rules, "ab\n\ncd\nx")) == written
    assert rules.stopped == (0 < lines < 4)


def test_bytes_become_text_when_a_character_is_complete():
    rules = rules_of(tokenizer=Tokenizer(None), stop="中b")
    released = [rules.push(token_id, -1.0) for token_id in "a中中b".encode()]
    assert [[character.text for character in characters] for characters in released] == [["a"], [], [], [], [], [], ["中"], []]
    assert released[6][0].log_probability == -3.0 and rules.stopped


def test_an_unfinished_character_is_not_lost():
    rules = rules_of(tokenizer=Tokenizer(None))
    assert rules.push("中".encode()[0], -1.0) == []
    assert rules.finish() == [("\ufffd", -1.0)]


def without(text: str, known: set[str], **options) -> str:
    return "".join(pieces(rules_of(excluded=known, **options), text))


@given(
    st.lists(st.text("abcd", max_size=3), min_size=1, max_size=8),
    st.sets(st.text("abcd", max_size=2)),
    st.integers(0, 4),
    st.sampled_from(["", "x"]),
)
def test_lines_left_out_are_neither_part_of_it_nor_counted(lines, known, wanted, begun):
    """Empty lines stay, and so does the end of a line of the prompt, whatever it is."""
    *kept, last = (None if line in known - {""} and (i or not begun) else line for i, line in enumerate(lines))
    kept = [line for line in kept if line is not None]
    whole = "".join(f"{line}\n" for line in kept) + (last or "")
    written = without("\n".join(lines), known, lines=wanted, begun=begun)
    assert written == ("\n".join(kept[:wanted]) if 0 < wanted <= len(kept) else whole)


def test_a_line_is_given_out_once_it_is_whole_and_a_stop_text_still_stops():
    assert pieces(rules_of(excluded=()), "ab\nc") == ["", "", "ab\n", "", "c"]
    assert without("ab\ncx\nd", {"ab"}, stop="x") == "c"


@given(
    st.lists(st.text("ab", max_size=2), max_size=12), st.sets(st.text("ab", min_size=1, max_size=4)), st.text("ab", max_size=2)
)
def test_unique_lines_are_compared_whole_with_the_prompt_that_begins_them(ends, excluded, begun):
    """What the model writes is the end of each line; what the text has, and what was written before, are whole lines."""
    rules = rules_of(lines=20, excluded=excluded, unique=True, begun=begun)
    written = begun + "".join(pieces(rules, "".join(f"{end}\n" for end in ends)))
    expected = dict.fromkeys(begun + end for end in ends if (begun + end) not in ("", *excluded))
    assert written == ("\n".join(expected) if expected else begun)


@given(
    st.lists(st.text("abc", max_size=4), max_size=10),
    st.lists(st.text("ABc", min_size=1, max_size=3), min_size=1, max_size=2),
    st.sampled_from(["", "x", "ca"]),
    st.booleans(),
    st.integers(0, 3),
)
def test_no_line_has_a_banned_word_and_all_others_are_written(ends, words, begun, unique, wanted):
    """Whatever its case, also where the prompt and the continuation form it, and in a line that a stop text cuts."""
    folded = [word.casefold() for word in words]
    rules = rules_of(lines=wanted or 20, ban_word=words, unique=unique, begun=begun, stop="d")
    written = begun + "".join(pieces(rules, "\n".join([*ends, "bcd"])))
    first, *others = written.split("\n")
    assert not any(word in line.casefold() for line in others for word in folded)
    assert first == begun or not any(word in first.casefold() for word in folded)
    if not unique and not begun and not wanted:
        kept = [end for end in [*ends, "bc"] if not any(word in end.casefold() for word in folded)]
        assert written.split() == [line for line in kept if line]


@given(st.lists(st.integers(0, 12), max_size=12))
def test_a_sample_ends_after_too_many_lines_in_a_row_that_are_removed_and_not_in_all(repeats):
    """Before each new line, so many times the first one, which is removed."""
    with patch.object(stop_rules, "ATTEMPTS", 10):
        rules = rules_of(lines=99, unique=True)
        new = ["".join(pair) for pair in itertools.product("abcd", "abcdx")][1:]
        written = "".join(pieces(rules, "aa\n" + "".join("aa\n" * count + f"{line}\n" for count, line in zip(repeats, new))))
    ends = next((i for i, count in enumerate(repeats) if count >= 10), len(repeats))
    assert written.split("\n") == ["aa", *new[:ends]] and (rules.attempts_left == 0) == (ends < len(repeats))


def test_a_stop_text_is_normalised_as_the_training_text_was():
    tokenizer = Tokenizer("\nab", normalizer=TextNormalizer(lowercase=True))
    writer = torch_writer(clear_model(tokenizer.vocab_size, scale=1.0))
    upper, lower = (
        TextGenerator(writer=writer, tokenizer=tokenizer, options=SamplingOptions(stop=stop)).continuations([[1]], [1])
        for stop in ("A", "a")
    )
    assert upper == lower


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ab\ncd\nx", "only 2 of 4 lines were written; raise --length"),
        ("", "only 0 of 4 lines were written; raise --length"),
        (
            "ab\n" * 1001,
            "only 1 of 4 lines were written, since the next 1,000 were blank, banned or not new; raise --temperature",
        ),
        ("ab\ncyd\n", "None"),
        ("y", "None"),
        ("a\nb\nc\nd\n", "None"),
    ],
)
def test_too_few_lines_are_told_with_what_ended_them_unless_the_user_ended_them(text, says):
    rules = rules_of(lines=4, unique=True, stop=["y"])
    pieces(rules, text)
    assert str(too_few_lines([rules], SamplingOptions(lines=4, unique=True))) == says
    assert too_few_lines([rules], SamplingOptions(lines=4)) is None
