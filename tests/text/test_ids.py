"""The ids of a text decode to exactly that text."""

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from text_helpers import text_of

MANY = "".join(map(chr, [*range(0x20, 0xD800), *range(0xE000, 0x1_3000)]))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=20))
@example("a" * 100)
@example("the sea\r\nthe stone\rthe\0sea and\0stone")
@example("sea\u2028and\u2029stone\x85\x0b\x0c\x1c and\ufeff 海 🌊 \U0010fffd é e\u0301")
@example(MANY)  # more than 2^16 characters
def test_ids_mean_the_text_byte_for_byte(load, tmp_path, text):
    if text.startswith("\ufeff") or text.encode()[:4] in (b"PK\x03\x04", b"%PDF"):
        text = "." + text
    if text.count("\0") > len(text) / 4:  # not a text
        text = text.replace("\0", "0")
    path = tmp_path / "text.txt"
    path.write_bytes(text.encode())
    corpus = load(path, newlines="keep")
    assert text_of(corpus) == text and corpus.tokenizer.characters == "".join(sorted(set(text)))
    assert len(corpus.train) == len(text) // 2 and corpus.train.dtype == corpus.val.dtype == corpus.tokenizer.dtype
    ids = corpus.tokenizer.encode(text)
    assert ids.tolist() == [*corpus.train, *corpus.val] and corpus.counts.tolist() == np.bincount(ids).tolist()
    of_bytes = load(path, vocabulary="bytes")
    assert bytes(of_bytes.train) + bytes(of_bytes.val) == path.read_bytes()
