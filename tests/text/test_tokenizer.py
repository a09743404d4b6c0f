"""Text <-> ids: nothing is lost, unknown characters are reported, and a hostile vocabulary is refused."""

import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chargpt.config import DataConfig
from chargpt.text.normalization import TextNormalizer
from chargpt.text.tokenizer import (
    CODE_POINTS,
    FOLDED,
    DecodeStream,
    Tokenizer,
    UnknownCharacters,
    character_name,
    code_points,
    utf8_lengths,
)

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def fitted(text: str, *, normalizer: TextNormalizer = TextNormalizer(), **limits: object) -> Tokenizer:
    counts = np.bincount(code_points(normalizer.apply(text)), minlength=CODE_POINTS)
    return Tokenizer.fit(counts, normalizer=normalizer, **limits)


@given(ANY_TEXT.filter(bool), ANY_TEXT)
@example("aß\r", "b\r\rb")
def test_decoding_undoes_encoding_and_unknown_characters_are_named_in_order(text, other):
    tokenizer = fitted(text)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text == tokenizer.decode(ids.tolist()) and tokenizer.characters == "".join(sorted({*text}))
    assert ids.dtype == np.int64 and ids.shape == (len(text),) and ids.max() < tokenizer.vocab_size == len({*text})
    normal = other if "\r" in text else other.replace("\r\n", "\n").replace("\r", "\n")
    unknown = "".join(c for c in normal if c not in text)
    known, skipped = tokenizer.encode_known(other)
    assert skipped == unknown and tokenizer.decode(known) == "".join(c for c in normal if c in text)
    if unknown:
        with pytest.raises(UnknownCharacters) as error:
            tokenizer.encode(other, name="poem", what_to_do="think")
        message, distinct = str(error.value), [*dict.fromkeys(unknown)]
        places = [f"{character_name(c)} at character {normal.index(c) + 1:,}" for c in distinct]
        assert message.startswith(f"poem: characters that the model has never seen: {places[0]}") and message.endswith(
            "; think"
        )
        assert all(place in message for place in places[:8]) and (f" and {len(places) - 8} more" in message) == (
            len(places) > 8
        )


@given(ANY_TEXT)
def test_bytes_hold_every_text_and_stream_as_they_come(text):
    tokenizer = Tokenizer(None)
    ids = tokenizer.encode(text)
    assert tokenizer.vocab_size == 256 and tokenizer.decode(ids) == text and ids.dtype == np.int64
    stream = DecodeStream(tokenizer)
    assert "".join(stream.push([i]) for i in ids.tolist()) + stream.finish() == text
    assert utf8_lengths(code_points(text)).tolist() == [len(c.encode()) for c in text]


def test_a_prompt_is_normalised_like_the_text():
    tokenizer = fitted("Cafe\u0301\r\n", normalizer=TextNormalizer(newlines="fold", normalize="NFC", lowercase=True))
    assert tokenizer.characters == "\nacfé"
    assert tokenizer.decode(tokenizer.encode("FACE\u0301\r")) == "facé\n"
    tokenizer = fitted("face\n")  # the text had no \r, so the normaliser keeps line ends
    assert tokenizer.normalizer.newlines == "keep" and tokenizer.decode(tokenizer.encode("a\r\nc\r")) == "a\nc\n"
    tokenizer = fitted("face\n" * 2 + "x\n", min_count=2)
    assert tokenizer.folded and tokenizer.decode(tokenizer.encode("a\r\nc\r")) == "a\nc\n"
    assert tokenizer.settings(DataConfig()).newlines == "keep", "the ids of a run with --vocab-from stay what they are"
    assert fitted("face\r\n").decode(fitted("face\r\n").encode("a\r\nc")) == "a\r\nc"


@given(ANY_TEXT.filter(lambda text: text and "\r" not in text), st.integers(0, 20), st.integers(1, 3), ANY_TEXT)
@example("aaabbcd", 3, 1, "")
@example("dcba", 3, 1, "")  # the last of equals is dropped
@example("aaabbbccd", 4, 2, "")  # the id of the folded ones counts
@example("aaabbbccd", 3, 2, "")
def test_a_vocabulary_holds_what_is_known_and_the_commonest_within_a_limit(text, limit, min_count, known):
    limit = limit and limit + 1 + len({*known})
    tokenizer = fitted(text, max_vocab=limit, min_count=min_count, known=known)
    often = sorted({c for c in text if text.count(c) >= min_count} - {*known}, key=lambda c: (-text.count(c), c))
    is_whole = {*text} <= {*often, *known}
    fits = not limit or len(often) + len({*known}) + (not is_whole) <= limit
    kept = {*known, *(often if fits else often[: limit - 1 - len({*known})])}
    assert tokenizer.characters == "".join(sorted(kept)) and tokenizer.folded == (not {*text} <= kept)
    assert tokenizer.never_sampled == (len(kept),) * tokenizer.folded and tokenizer.vocab_size == len(kept) + tokenizer.folded
    if kept and "\r" not in known:  # which is read as \n
        assert tokenizer.decode(tokenizer.encode(text)) == "".join(c if c in kept else FOLDED for c in text)
        assert tokenizer.folded_in(text) == "".join(c for c in text if c not in kept)


def test_the_nearest_character_is_alike_in_case_base_look_or_kind():
    tokenizer = fitted("aB1'-. \n")
    nearest = {"A": "a", "b": "B", "à": "a", "À": "a", "’": "'", "—": "-", "!": "'", "/": ".", "\t": " ", "٣": "1", "Ω": None}
    nearest |= {"´": "'", "¨": None, "\u00a0": " ", "½": "1"}
    assert {character: tokenizer.nearest(character) for character in nearest} == nearest
    for known, wanted in {"“”": '"', "’": "'`", "”": '“"', '"': "“„»", "—": "-–", "–": "-—", "×": "x", "\u2028": "\r"}.items():
        tokenizer = Tokenizer("".join(sorted(known + "«()…")))
        assert {tokenizer.nearest(character) for character in wanted} == {known[0]}
    with pytest.raises(UnknownCharacters, match=r"'é' U\+00E9 .* \(nearest known: 'e' U\+0065 LATIN SMALL LETTER E\); change"):
        fitted("sea").encode("é")


def test_ids_take_the_smallest_numbers_that_hold_them():
    for size, dtype in ((256, "u1"), (257, "u2"), (65_536, "u2"), (65_537, "u4")):
        assert Tokenizer("".join(map(chr, range(0x10000, 0x10000 + size)))).dtype == dtype


def test_half_a_surrogate_pair_is_unknown_but_no_crash():
    for tokenizer in (fitted("abc"), Tokenizer(None)):
        with pytest.raises(UnknownCharacters, match="U\\+D800"):
            tokenizer.encode("a\ud800")
        assert tokenizer.folded_in("a\ud800") == ""
    assert Tokenizer(None).encode("\udce9").tolist() == [0xE9]  # how a command line hands on a byte that is not UTF-8
    assert utf8_lengths(np.array([0xDC7F, 0xDC80, 0xDCFF, 0xDD00])).tolist() == [3, 1, 1, 3]


GOOD = {"characters": "ab", "folded": False, "newlines": "keep", "normalize": "none", "lowercase": False}
OTHER_GOOD = [{"folded": True}, {"characters": None}, {"newlines": "fold", "normalize": "NFC"}, {"lowercase": True}]
HOSTILE = [
    None, [], "ab", {}, {**GOOD, "extra": 1}, {k: v for k, v in GOOD.items() if k != "folded"},
    *({**GOOD, "characters": bad} for bad in ("", "ba", "aa", ["a", "b"], 5, "a\ud800", {"a": 1})),
    *({**GOOD, "folded": bad} for bad in (1, None, "true")), {**GOOD, "characters": None, "folded": True},
    *({**GOOD, "newlines": bad} for bad in ("none", None, [], {})), {**GOOD, "normalize": "NFKD"}, {**GOOD, "lowercase": 0},
]  # fmt: skip


def test_a_vocabulary_comes_back_from_json_and_nothing_else_is_taken_for_one():
    for changes in ({}, *OTHER_GOOD):
        tokenizer = Tokenizer.from_json(json.loads(json.dumps(GOOD | changes)))
        assert tokenizer.to_json() == GOOD | changes and Tokenizer.from_json(tokenizer.to_json()) == tokenizer
    for data in HOSTILE:
        with pytest.raises(ValueError, match="vocabulary"):
            Tokenizer.from_json(data)
