"""Streams hold any units, whichever engine writes and reads them, in as many bits as the model's loss says."""

import math
import random

import numpy as np
import pytest
import torch
from model_helpers import SHAPES, new_model

from chargpt.archive import compression
from chargpt.archive.compression import Coding, Units, decode, encode, segment_lengths, split_units
from chargpt.archive.exact_model import CEngine, ExactWeights, TorchEngine
from chargpt.kernels.compiler import Unavailable
from chargpt.kernels.exact import load_kernel
from chargpt.sampling.surprisal import surprisals
from chargpt.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer("\n abcdefghijk")


def engines(config) -> dict:
    """The engines of this machine: in torch, and if there is a compiler in C with one and two threads."""
    weights = ExactWeights(new_model(config), 13)
    found = {"torch": TorchEngine(weights)}
    try:
        found |= {f"C, {threads}": CEngine(weights, load_kernel(), threads=threads) for threads in (1, 2)}
    except Unavailable as reason:
        pytest.skip(f"needs a C compiler: {reason}")
    return found


def coding(engine, config, stride: int) -> Coding:
    return Coding(engine=engine, block_size=config.block_size, stride=stride, first_id=0, escapes=True)


def text_of(seed: int, length: int) -> bytes:
    draw = random.Random(seed)
    return "".join(draw.choices("abc defghijk\nXé", weights=[9] * 13 + [1, 1], k=length)).encode()


def restored(streams: list[bytes], units: Units, by: Coding) -> Units:
    return decode(
        streams, by, n=len(units.ids), trailing=int(units.counts[-1]), most_escaped=len(units.escaped), progress=lambda n: None
    )


@pytest.mark.parametrize("config", SHAPES, ids=lambda config: f"{config.positions}-{config.n_embd}")
def test_one_engine_reads_what_another_has_written(config, monkeypatch):
    monkeypatch.setattr(compression, "SEGMENT", 40)  # several segments
    found = engines(config)
    for seed, stride in enumerate({1, max(1, config.block_size // 2), config.block_size}):
        units = split_units(text_of(seed, 170), TOKENIZER)
        written = {
            name: encode(units, coding(engine, config, stride), progress=lambda n: None) for name, engine in found.items()
        }
        assert len({tuple(streams) for streams in written.values()}) == 1 and len(written["torch"]) >= 3
        for reader in found.values():  # all have written the same
            back = restored(written["torch"], units, coding(reader, config, stride))
            assert np.array_equal(back.ids, units.ids) and back.escaped == units.escaped
            assert np.array_equal(back.counts, units.counts)


@pytest.mark.parametrize("length", [0, 1, 2, 11, 12, 13, 14, 47, 60])
def test_every_length_of_text(length):
    config = SHAPES[0]
    engine = TorchEngine(ExactWeights(new_model(config), 13))
    for stride in (1, 5, 12):
        by = coding(engine, config, stride)
        units = split_units(text_of(length, length), TOKENIZER)
        back = restored(encode(units, by, progress=lambda n: None), units, by)
        assert np.array_equal(back.ids, units.ids) and np.array_equal(back.counts, units.counts)


def test_the_size_is_what_the_loss_says():
    config = SHAPES[0]
    model = new_model(config)
    by = coding(TorchEngine(ExactWeights(model, 13)), config, 6)
    ids = np.random.default_rng(0).integers(0, 13, 3000)
    units = Units(ids=ids, escaped=b"", counts=np.zeros(3001, np.int64))
    (stream,) = encode(units, by, progress=lambda n: None)
    pieces = surprisals(model, [np.concatenate(([0], ids))], stride=6)
    bits = sum(part.sum(dtype=np.float64) for part in pieces) / math.log(2)
    flags = 3000 * 16 / compression.FLAGS * math.log2(math.e)  # that no byte was escaped
    assert abs(8 * len(stream) - bits - flags) < 32 + 1e-5 * bits


def test_segments_are_even_and_their_number_is_bounded():
    assert segment_lengths(0) == [0] and segment_lengths(5) == [5]
    assert segment_lengths(2**14 + 1) == [2**13 + 1, 2**13]
    assert len(segment_lengths(10**9)) == compression.MAX_SEGMENTS and sum(segment_lengths(10**9)) == 10**9


def test_a_file_without_known_characters_costs_little_more_than_its_bytes():
    data = random.Random(0).randbytes(4000)
    config = SHAPES[0]
    by = coding(TorchEngine(ExactWeights(new_model(config), 13)), config, 6)
    units = Units(ids=np.empty(0, np.int64), escaped=data, counts=np.array([len(data)]))
    streams = encode(units, by, progress=lambda n: None)
    assert sum(map(len, streams)) < 1.04 * len(data)
    assert restored(streams, units, by).escaped == data


def test_damaged_streams_end():
    config = SHAPES[0]
    by = coding(TorchEngine(ExactWeights(new_model(config), 13)), config, 6)
    units = split_units(text_of(1, 60), TOKENIZER)
    torch.manual_seed(0)
    for seed in range(6):
        damaged = [random.Random(seed).randbytes(40)]
        try:
            assert len(restored(damaged, units, by).ids) == len(units.ids)
        except ValueError as error:
            assert str(error)
