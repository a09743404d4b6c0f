"""How a text is divided: lines in an order that never changes, whole and in one part each; blocks with margins."""

import hashlib
import itertools
from collections import Counter
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_helpers import text_of, write

from chargpt.config import DataConfig
from chargpt.errors import UserError
from chargpt.text import shuffle
from chargpt.text.document import TRAIN, VAL
from chargpt.text.ids import BLOCKS, split_of
from chargpt.text.shuffle import random_order, shuffled_lines

NAMES = [f"{a}{b}{c}" for a in "ABCDEFGHIJ" for b in "aeiouy" for c in ("nna", "l", "rtha")]


@given(st.lists(st.text("abc", max_size=9)), st.booleans(), st.integers(1, 12))
def test_the_filled_lines_change_places_and_the_empty_ones_keep_theirs(lines, is_complete, block):
    text = "\n".join(lines) + "\n" * is_complete
    with patch.object(shuffle, "BLOCK", block):
        pieces = [piece.tobytes().decode() for piece in shuffled_lines(np.frombuffer(text.encode(), np.uint8), ord("\n"))]
    assert all("\n" not in piece[:-1] for piece in pieces), "each piece is a line"
    before, filled = text.split("\n"), [line for line in text.split("\n") if line]
    expected = iter([filled[place] for place in random_order(len(filled))])
    assert "".join(pieces).split("\n") == [line and next(expected) for line in before]


def test_the_order_is_random_and_the_same_in_every_version():
    order = random_order(10_000)
    digest = "5cf1387eecba93d27cfa4ccd3fc5e76f9fdaf78d2b368984216a8ac92ff879e8"  # it may not change: resumed runs need the text
    assert hashlib.sha256("".join(f"{n}\n" for n in order).encode()).hexdigest() == digest
    assert abs(np.corrcoef(order, np.arange(10_000))[0, 1]) < 0.05
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 0.05 and (np.diff(order) == 1).sum() < 10


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
    with pytest.raises(UserError, match="data.shuffle: lines given, but the text is one line; leave it out"):
        load(write(tmp_path / "a.txt", "the sea and the stone" + end), shuffle="lines", **changes)


@given(st.integers(0, 10**7), st.floats(0.001, 0.9))
def test_blocks_in_the_middle_of_equal_parts_validate_with_margins_in_no_split(characters, fraction):
    stretches = split_of(characters, DataConfig(split="blocks", val_fraction=fraction)).stretches
    ends = [0, *itertools.accumulate(size for size, _ in stretches)]
    assert all(size > 0 for size, _ in stretches) and ends[-1] == characters
    parts = [(start, end, part) for start, end, (_, part) in zip(ends, ends[1:], stretches)]
    size = int(characters / BLOCKS * fraction)
    blocks, margins = ([(start, end) for start, end, of in parts if of == part] for part in (VAL, None))
    assert len(blocks) == BLOCKS * (size > 0) and all(end - start == size for start, end in blocks)
    margin = int(min(500, size / 10, (characters / BLOCKS - size) / 4))
    assert len(margins) == 2 * BLOCKS * (margin > 0) and all(end - start == margin for start, end in margins)
    for number, (start, end) in enumerate(blocks):
        assert abs((start + end) / 2 - (number + 0.5) * characters / BLOCKS) <= 1
    assert {part for _, _, part in parts} <= {TRAIN, VAL, None}
