"""Shuffled lines: the same lines in an order that never changes, whole, and in one part each."""

import hashlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_helpers import text_of, write

from chargpt.terminal import UserError
from chargpt.text.shuffle import shuffled_lines

NAMES = [f"{a}{b}{c}" for a in "ABCDEFGHIJ" for b in "aeiouy" for c in ("nna", "l", "rtha")]


def shuffled(text: str) -> str:
    ids = np.frombuffer(text.encode(), np.uint8)
    return b"".join(piece.tobytes() for piece in shuffled_lines(ids, ord("\n"))).decode()


@given(st.lists(st.text("abc", max_size=9)), st.booleans())
def test_the_lines_stay_the_same_and_the_empty_ones_in_their_places(lines, is_complete):
    text = "\n".join(lines) + "\n" * is_complete
    result = shuffled(text)
    before, after = text.split("\n"), result.split("\n")
    assert Counter(before) == Counter(after) and result.endswith("\n") == text.endswith("\n")
    assert [not line for line in before] == [not line for line in after]


def test_the_order_is_random_and_the_same_in_every_version():
    text = shuffled("".join(f"{n}\n" for n in range(10_000)))
    digest = "5cf1387eecba93d27cfa4ccd3fc5e76f9fdaf78d2b368984216a8ac92ff879e8"  # it may not change: resumed runs need the text
    assert hashlib.sha256(text.encode()).hexdigest() == digest
    places = np.array(text.split()).astype(int)
    assert abs(np.corrcoef(places, np.arange(10_000))[0, 1]) < 0.05
    assert abs(np.corrcoef(places[1:], places[:-1])[0, 1]) < 0.05 and (np.diff(places) == 1).sum() < 10


@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize("changes", [{}, {"vocabulary": "bytes"}, {"lowercase": True}, {"max_vocab": 12}], ids=str)
def test_no_line_is_cut_or_in_both_parts(changes, end, load, tmp_path):
    plain = load(write(tmp_path / "names.txt", "\n".join(NAMES) + end), val_fraction=0.1, **changes)
    corpus = load(tmp_path / "names.txt", val_fraction=0.1, shuffle="lines", **changes)
    train, val = (corpus.tokenizer.decode(part).split("\n") for part in (corpus.train, corpus.val))
    assert Counter(filter(None, train + val)) == Counter(filter(None, text_of(plain).split("\n"))) and train[-1] == ""
    assert 0.07 < len(corpus.val) / corpus.characters < 0.13 and np.array_equal(corpus.counts, plain.counts)
    if not changes:
        assert not set(train) & set(val) - {""} and len({name[0] for name in val if name}) > 5


def test_one_line_cannot_be_shuffled(load, tmp_path):
    with pytest.raises(UserError, match="data.shuffle: lines given, but the text is one line; leave it out"):
        load(write(tmp_path / "a.txt", "the sea and the stone\n"), shuffle="lines")
