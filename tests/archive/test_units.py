"""Any bytes are split into known characters and escaped bytes, and joined again."""

import random

import numpy as np
import pytest

from chargpt.archive.compression import join_units, split_units, symbols_of
from chargpt.text.tokenizer import Tokenizer

TOKENIZERS = {
    "characters": Tokenizer("\n abcé中\U0001f600"),
    "folded": Tokenizer("\n abcé", folded=True),
    "bytes": Tokenizer(None),
}
SAMPLES = [
    b"",
    b"abc\n",
    b"\r\n\r",
    "\ufeffaé中\U0001f600\U0001f601".encode(),
    b"\xff\xfe\x00a\xc3",
    b"\xc3\x28\xe2\x82 \xed\xa0\x80 \xf0\x9f\x98 \xc0\x80 \xf4\x90\x80\x80",
    bytes(range(256)),
]


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("data", SAMPLES)
def test_what_is_split_is_joined(name, data):
    tokenizer = TOKENIZERS[name]
    units = split_units(data, tokenizer)
    assert join_units(units, tokenizer) == data
    assert len(units.counts) == len(units.ids) + 1 and units.counts.sum() == len(units.escaped)
    assert len(units.ids) == 0 or units.ids.max() < symbols_of(tokenizer)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_random_bytes(name):
    draw = random.Random(name)
    alphabet = [b"a", b"\n", "é".encode(), "中".encode(), b"\x80", b"\xc3", b"\xf0\x9f", "\U0001f600".encode(), b"Z"]
    for _ in range(200):
        data = b"".join(draw.choices(alphabet, k=draw.randrange(30)))
        assert join_units(split_units(data, TOKENIZERS[name]), TOKENIZERS[name]) == data


def test_known_characters_and_the_bytes_between_them():
    units = split_units("aXé\u00ffb\xff".encode("latin-1"), TOKENIZERS["characters"])
    assert units.escaped == b"X\xe9\xff\xff" and units.counts.tolist() == [0, 3, 1]
    units = split_units(b"ab", TOKENIZERS["bytes"])
    assert np.array_equal(units.ids, [97, 98]) and not units.escaped


def test_the_id_of_folded_characters_is_never_used():
    units = split_units(b"aXb", TOKENIZERS["folded"])
    assert units.escaped == b"X" and units.ids.tolist() == [2, 3] and symbols_of(TOKENIZERS["folded"]) == 6
