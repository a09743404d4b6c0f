"""Text <-> ids: nothing is lost, unknown characters are reported, and a hostile vocabulary is refused."""

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chargpt.config import DataConfig
from chargpt.text.normalization import TextNormalizer
from chargpt.text.tokenizer import CODE_POINTS, FOLDED, DecodeStream, Tokenizer, UnknownCharacters, code_points, utf8_lengths

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def fitted(text: str, *, normalizer: TextNormalizer = TextNormalizer(), **limits: object) -> Tokenizer:
    counts = np.bincount(code_points(normalizer.apply(text)), minlength=CODE_POINTS)
    return Tokenizer.fit(counts, normalizer=normalizer, **limits)


@settings(max_examples=50)
@given(ANY_TEXT.filter(bool))
def test_decoding_undoes_encoding_and_ids_follow_code_points(text):
    tokenizer = fitted(text)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text and tokenizer.decode(ids.tolist()) == text
    assert tokenizer.characters == "".join(sorted(set(text)))
    assert ids.dtype == np.int64 and ids.shape == (len(text),) and ids.max() < tokenizer.vocab_size == len(set(text))


@settings(max_examples=50)
@given(ANY_TEXT.filter(bool), ANY_TEXT, st.integers(1, 20))
def test_a_vocabulary_holds_what_is_known_already(text, known, more):
    tokenizer = fitted(text, known=known)
    assert tokenizer.characters == "".join(sorted({*text, *known})) and not tokenizer.folded
    folded = fitted(text, max_vocab=2, known=known)
    assert {*known} <= {*folded.characters} and folded.folded == (not {*text} <= {*folded.characters})
    limit = len({*known}) + more
    limited = fitted(text, max_vocab=limit, known=known)
    assert {*known} <= {*limited.characters} and limited.vocab_size == min(limit, len({*text, *known}))


@settings(max_examples=50)
@given(ANY_TEXT)
def test_bytes_hold_every_text_and_stream_as_they_come(text):
    tokenizer = Tokenizer(None)
    ids = tokenizer.encode(text)
    assert tokenizer.vocab_size == 256 and tokenizer.decode(ids) == text and ids.dtype == np.int64
    stream = DecodeStream(tokenizer)
    assert "".join(stream.push([i]) for i in ids.tolist()) + stream.finish() == text


def test_a_prompt_is_normalised_like_the_text():
    tokenizer = fitted("Cafe\u0301\r\n", normalizer=TextNormalizer(newlines="fold", normalize="NFC", lowercase=True))
    assert tokenizer.characters == "\nacfé"
    assert tokenizer.decode(tokenizer.encode("FACE\u0301\r")) == "facé\n"
    tokenizer = fitted("face\n")  # the text had no \r, so the normaliser keeps line ends
    assert tokenizer.normalizer.newlines == "keep" and tokenizer.decode(tokenizer.encode("a\r\nc\r")) == "a\nc\n"
    tokenizer = fitted("face\n" * 2 + "x\n", min_count=2)
    assert tokenizer.folded and tokenizer.decode(tokenizer.encode("a\r\nc\r")) == "a\nc\n"
    assert tokenizer.settings(DataConfig()).newlines == "keep", "the ids of a run with --vocab-from stay what they are"
    tokenizer = fitted("face\r\n")
    assert tokenizer.decode(tokenizer.encode("a\r\nc")) == "a\r\nc"


@settings(max_examples=50)
@given(ANY_TEXT.filter(lambda text: text and "\r" not in text), st.integers(2, 20), st.integers(1, 3))  # \r is read as \n
@example("aaabbcd", 3, 1)
@example("dcba", 3, 1)  # the last of equals is dropped
@example("aaabbbccd", 4, 2)  # the id of the folded ones counts
@example("aaabbbccd", 3, 2)
def test_a_limit_keeps_the_commonest_and_counts_the_folded_one(text, limit, min_count):
    tokenizer = fitted(text, max_vocab=limit, min_count=min_count)
    often = sorted({c for c in text if text.count(c) >= min_count}, key=lambda c: (-text.count(c), c))
    kept = often if len(often) + (len(often) < len(set(text))) <= limit else often[: limit - 1]
    assert tokenizer.characters == "".join(sorted(kept)) and tokenizer.folded == (len(kept) < len(set(text)))
    assert tokenizer.never_sampled == (len(kept),) * tokenizer.folded and tokenizer.vocab_size == len(kept) + tokenizer.folded
    assert not kept or tokenizer.decode(tokenizer.encode(text)) == "".join(c if c in kept else FOLDED for c in text)


def test_the_nearest_character_is_alike_in_case_base_look_or_kind():
    tokenizer = fitted("aB1'-. \n")
    nearest = {"A": "a", "b": "B", "à": "a", "À": "a", "’": "'", "—": "-", "!": "'", "/": ".", "\t": " ", "٣": "1", "Ω": None}
    nearest |= {"´": "'", "¨": None, "\u00a0": " "}
    assert {character: tokenizer.nearest(character) for character in nearest} == nearest
    for known, wanted in {"“”": '"', "’": "'`", "”": '“"', '"': "“„»", "—": "-–", "–": "-—", "×": "x", "\u2028": "\r"}.items():
        tokenizer = Tokenizer("".join(sorted(known + "«()…")))
        assert {tokenizer.nearest(character) for character in wanted} == {known[0]}


def test_ids_take_the_smallest_numbers_that_hold_them():
    for size, dtype in ((256, "u1"), (257, "u2"), (65_536, "u2"), (65_537, "u4")):
        assert Tokenizer("".join(map(chr, range(0x10000, 0x10000 + size)))).dtype == dtype


def test_unknown_characters_are_listed_once_with_place_and_nearest():
    tokenizer = fitted("hello, wörld 'x' 1\n")
    with pytest.raises(UnknownCharacters) as error:
        tokenizer.encode("Hé “x”é\r½€")
    message = str(error.value)
    assert [name for name in "Hé“”x\r½€" if repr(name) + " U+" in message] == list("Hé“”½€")  # \r is read as \n
    assert "'é' U+00E9 LATIN SMALL LETTER E WITH ACUTE at character 2 (nearest known: 'e' U+0065" in message
    assert "nearest known: 'h'" in message and "'½' U+00BD" in message and "nearest known: '1'" in message
    assert "'€' U+20AC EURO SIGN at character 10; change them" in message
    ids, skipped = fitted("abc").encode_known("aXbXY")
    assert ids.tolist() == [0, 1] and skipped == "XXY"


def test_half_a_surrogate_pair_is_unknown_but_no_crash():
    for tokenizer in (fitted("abc"), Tokenizer(None)):
        with pytest.raises(UnknownCharacters, match="U\\+D800"):
            tokenizer.encode("a\ud800")
    assert Tokenizer(None).encode("\udce9").tolist() == [0xE9]  # how a command line hands on a byte that is not UTF-8


GOOD = {"characters": "ab", "folded": False, "newlines": "keep", "normalize": "none", "lowercase": False}
OTHER_GOOD = [{"folded": True}, {"characters": None}, {"newlines": "fold", "normalize": "NFC"}, {"lowercase": True}]
HOSTILE = [
    None, [], "ab", {}, {**GOOD, "extra": 1}, {k: v for k, v in GOOD.items() if k != "folded"},
    *({**GOOD, "characters": bad} for bad in ("", "ba", "aa", ["a", "b"], 5, "a\ud800", {"a": 1})),
    *({**GOOD, "folded": bad} for bad in (1, None, "true")), {**GOOD, "characters": None, "folded": True},
    *({**GOOD, "newlines": bad} for bad in ("none", None, [], {})), {**GOOD, "normalize": "NFD"}, {**GOOD, "lowercase": 0},
]  # fmt: skip


def test_a_vocabulary_comes_back_from_json_and_nothing_else_is_taken_for_one():
    for changes in ({}, *OTHER_GOOD):
        tokenizer = Tokenizer.from_json(json.loads(json.dumps(GOOD | changes)))
        assert tokenizer.to_json() == GOOD | changes and Tokenizer.from_json(tokenizer.to_json()) == tokenizer
    for data in HOSTILE:
        with pytest.raises(ValueError, match="vocabulary"):
            Tokenizer.from_json(data)


def test_the_length_in_utf_8_of_every_kind_of_character():
    edges = [0, 0x7F, 0x80, 0x7FF, 0x800, 0xDC7F + 1, 0xDCFF, 0xFFFF, 0x10000, 0x10FFFF]
    expected = [len(chr(point).encode("utf-8", "surrogateescape")) for point in edges]
    assert utf8_lengths(np.array(edges)).tolist() == expected
    assert utf8_lengths(np.array([0xDC7F, 0xDD00])).tolist() == [3, 3]  # not bytes of an undecodable text
