"""The ids of a text decode to exactly that text."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from text_helpers import text_of

MANY = "".join(map(chr, [*range(0x20, 0xD800), *range(0xE000, 0x1_3000)]))


TRAINS = {
    "one character repeated": "a" * 100,
    "just long enough for both parts": "ab" * 5,
    "no line end at the end": "the sea\nthe stone",
    "CRLF": "the sea\r\nthe stone\r\n",
    "lone CR": "the sea\rthe stone\r",
    "NUL bytes": "the\0sea and\0stone",
    "other line ends": "sea\u2028and\u2029stone\x85\x0b\x0c\x1c",
    "a mark in the middle": "sea and\ufeff stone",
    "all planes": "sea 海 🌊 \U0010fffd é e\u0301",
    "more than 2^16 characters": MANY,
}


@pytest.mark.parametrize("content", TRAINS.values(), ids=TRAINS.keys())
def test_ids_mean_the_text_byte_for_byte(content, load, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(content.encode())
    corpus = load(path, newlines="keep")
    assert text_of(corpus).encode() == path.read_bytes()
    assert corpus.tokenizer.characters == "".join(sorted(set(content)))
    assert len(corpus.train) == len(content) // 2 and corpus.characters == len(content)
    assert corpus.train.dtype == corpus.val.dtype == corpus.tokenizer.dtype and corpus.name == "text"
    assert corpus.counts.tolist() == [content.count(c) for c in sorted(set(content))] or len(set(content)) > 1000
    bytes_corpus = load(path, vocabulary="bytes")
    assert bytes(bytes_corpus.train) + bytes(bytes_corpus.val) == path.read_bytes()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=20))
def test_any_text_at_all(load, tmp_path, text):
    if text.startswith("\ufeff") or text.encode()[:4] in (b"PK\x03\x04", b"%PDF"):
        text = "." + text
    if text.count("\0") > len(text) / 4:  # not a text
        text = text.replace("\0", "0")
    (tmp_path / "text.txt").write_bytes(text.encode())
    corpus = load(tmp_path / "text.txt", newlines="keep")
    assert text_of(corpus) == text and corpus.train.max() < corpus.tokenizer.vocab_size
    assert corpus.tokenizer.encode(text).tolist() == [*corpus.train, *corpus.val]
