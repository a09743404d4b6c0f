"""A line stands in a text when it does so whole, wherever it stands."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chargpt.sampling import known_lines as novelty
from chargpt.sampling.known_lines import Known
from chargpt.text.normalization import TextNormalizer
from chargpt.text.tokenizer import Tokenizer


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
@given(
    lines=st.lists(st.text("ab\u0100", max_size=3), min_size=2, max_size=12), asked=st.text("ab\u0100", min_size=1, max_size=3)
)
def test_known_are_the_whole_lines_of_the_text(dtype, lines, asked):
    tokenizer = Tokenizer("\nab\u0100")
    text = "\n".join(lines)
    for text in (text, f"{text}\n"):
        known = Known(tokenizer.encode(text).astype(dtype), tokenizer)
        assert known(asked) == (asked in text.split("\n"))


def test_a_line_across_two_chunks_is_found(monkeypatch):
    monkeypatch.setattr(novelty, "CHUNK", 7)
    tokenizer = Tokenizer("\nabcdefgh")
    lines = ["abc", "defg", "h", "bcdefgh", "", "aaaaaaaaaaaa"]
    known = Known(tokenizer.encode("".join(f"{line}\n" for line in lines)), tokenizer)
    assert all(map(known, lines)) and not any(map(known, ["ab", "bc", "hbcdefgh", "aaaaaaaaaaa"]))


def test_ids_of_two_bytes_are_not_found_between_two_of_them():
    tokenizer = Tokenizer("".join(map(chr, [10, *range(256, 256 + 300)])))
    ids = np.array([1, 2, 0, 256, 0, 3, 0], np.uint16)
    assert not Known(ids, tokenizer)(tokenizer.decode([1])) and Known(ids, tokenizer)(tokenizer.decode([256]))


def test_what_the_model_wrote_is_not_normalised_again():
    text = "e\u0301\nab\n"  # NFC would make one character of two, which the vocabulary lacks
    tokenizer = Tokenizer("".join(sorted(set(text))), normalizer=TextNormalizer(normalize="NFC"))
    known = Known(np.array([tokenizer.characters.index(c) for c in text], np.uint8), tokenizer)
    assert known("e\u0301") and known("ab") and not known("e") and not known("z")
