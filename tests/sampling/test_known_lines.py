"""A line stands in a text when it does so whole, wherever it stands."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chargpt.sampling import known_lines
from chargpt.sampling.known_lines import KnownLines
from chargpt.text.normalization import TextNormalizer
from chargpt.text.suffix_array import SuffixIndex, sorted_chunks
from chargpt.text.tokenizer import Tokenizer


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
@settings(max_examples=40)
@given(
    lines=st.lists(st.text("ab\u0100", max_size=3), min_size=2, max_size=12), asked=st.text("ab\u0100", min_size=1, max_size=3)
)
def test_known_are_the_whole_lines_of_the_text(dtype, lines, asked):
    tokenizer = Tokenizer("\nab\u0100")
    whole = "\n".join(lines)
    for text in (whole, f"{whole}\n"):
        ids = tokenizer.encode(text).astype(dtype)
        index = SuffixIndex(ids, np.concatenate([np.zeros(0, "<u4"), *sorted_chunks(ids, vocab_size=tokenizer.vocab_size)]))
        for known in (KnownLines(ids, tokenizer), KnownLines(ids, tokenizer, index)):
            assert (asked in known) == (asked in text.split("\n"))


def test_a_line_across_two_chunks_is_found(monkeypatch):
    monkeypatch.setattr(known_lines, "CHUNK", 7)
    tokenizer = Tokenizer("\nabcdefgh")
    lines = ["abc", "defg", "h", "bcdefgh", "", "aaaaaaaaaaaa"]
    known = KnownLines(tokenizer.encode("".join(f"{line}\n" for line in lines)), tokenizer)
    assert all(line in known for line in lines)
    assert not any(line in known for line in ["ab", "bc", "hbcdefgh", "aaaaaaaaaaa"])


def test_what_the_model_wrote_is_not_normalised_again():
    text = "e\u0301\nab\n"  # NFC would make one character of two, which the vocabulary lacks
    tokenizer = Tokenizer("".join(sorted(set(text))), normalizer=TextNormalizer(normalize="NFC"))
    known = KnownLines(np.array([tokenizer.characters.index(c) for c in text], np.uint8), tokenizer)
    assert "e\u0301" in known and "ab" in known and "e" not in known and "z" not in known
