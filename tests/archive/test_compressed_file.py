"""The compressed file: it gives the original back, or an error, whatever the file and whatever has happened to it."""

import hashlib
import itertools
import random
import zlib

import pytest
import torch
from model_helpers import SHAPES, new_model

from chargpt.archive.compressed_file import HEAD, Compressor, Damaged, WrongModel, model_sha256
from chargpt.archive.compression import segment_lengths, symbols_of
from chargpt.archive.exact_model import CEngine, ExactWeights, TorchEngine, choose_engine
from chargpt.files import leb128
from chargpt.kernels.compiler import Unavailable
from chargpt.kernels.exact import load_kernel
from chargpt.model import GPT
from chargpt.text.tokenizer import Tokenizer

TOKENIZERS = [Tokenizer("\n abcdefghié中"), Tokenizer("\n abcdefghié", folded=True), Tokenizer(None)]


# The shapes of models, and the beginning of the SHA-256 of a file that they compress. They were the same in version 0.1.
FIXED = list(zip(SHAPES[:3], ("7d58ca01f3f7bc5c", "f53246046d29a8f2", "02294b54edb2166b")))


def compressors(tokenizer: Tokenizer = TOKENIZERS[0]) -> list[Compressor]:
    """By the engine in torch, and if there is a compiler by that in C, with one and two threads."""
    model = new_model(SHAPES[0], tokenizer.vocab_size)
    weights = ExactWeights(model, symbols_of(tokenizer))
    engines = [TorchEngine(weights)]
    try:
        engines += [CEngine(weights, load_kernel(), threads=threads) for threads in (1, 2)]
    except Unavailable:
        pass
    return [Compressor(model, tokenizer, engine=engine) for engine in engines]


def random_file(seed: int, most: int) -> bytes:
    """Text, other scripts, one long line, bytes, or a mixture."""
    draw = random.Random(seed)
    kinds = ["abcdef ghi\n", "中é", "🙂א‮я", "a", "\0\r\n\x1b", "bytes"]
    parts = []
    while sum(map(len, parts)) < draw.randrange(most + 1):
        kind = draw.choice(kinds)
        length = draw.randrange(1, most // 2 + 2)
        parts.append(draw.randbytes(length) if kind == "bytes" else "".join(draw.choices(kind, k=length)).encode())
    return b"".join(parts)[: most + 8]


def check_round_trips(seeds: range, most: int) -> None:
    for i, tokenizer in enumerate(TOKENIZERS):
        found = compressors(tokenizer)
        for seed, writer, reader in zip(
            seeds[i :: len(TOKENIZERS)], itertools.cycle(found), itertools.cycle([*found[1:], found[0]])
        ):
            data = random_file(seed, most)
            assert reader.restore(writer.compress(data, stride=1 + seed % 12)) == data, seed


def test_random_files_come_back_through_another_engine():
    check_round_trips(range(20), 60)


@pytest.mark.nightly
def test_two_hundred_random_files_come_back_through_another_engine():
    check_round_trips(range(200), 500)
    (compressor, *_) = reversed(compressors())
    for data in (b"", b"a" * 100_000, bytes(range(256)) * 300):
        assert compressor.restore(compressor.compress(data, stride=6)) == data


def check_damage(places: int, data: bytes) -> None:
    """Every kind of damage, also with a checksum that fits it, gives an error or the original, and never anything else."""
    compressor = compressors()[-1]
    packed, draw = compressor.compress(data, stride=6), random.Random(0)
    for i in range(places):
        at = draw.randrange(len(packed)) if places < len(packed) or i >= len(packed) else i
        for damaged in (
            packed[:at] + bytes([packed[at] ^ draw.randrange(1, 256)]) + packed[at + 1 :],
            packed[:at],
            packed[:at] + packed[at + 1 :],
            packed[:at] + draw.randbytes(3) + packed[at:],
        ):
            with pytest.raises((Damaged, WrongModel)):
                compressor.restore(damaged)
            # A hostile writer, or the worst of luck, makes the checksum of the file right; that of the original remains.
            resealed = damaged[:-4] + zlib.crc32(damaged[:-4]).to_bytes(4)
            try:
                assert compressor.restore(resealed) == data
            except (Damaged, WrongModel):
                pass


def test_a_damaged_file_never_gives_a_wrong_output():
    check_damage(40, random_file(3, 30))


@pytest.mark.nightly
def test_a_file_damaged_at_a_thousand_places_never_gives_a_wrong_output():
    check_damage(1000, random_file(3, 150))


def test_a_header_that_lies_about_lengths_ends_soon():
    (compressor, *_) = compressors()
    packed = compressor.compress(b"abc" * 20, stride=6)
    stream = packed[-20:-4]
    for size, n, trailing in ((2**62, 2**61, 0), (2**62, 0, 2**61), (2**62, 8, 2**50), (2**40, 2**40, 0)):
        lengths = [len(stream), *[0] * (len(segment_lengths(n)) - 1)]
        body = packed[:HEAD] + b"".join(map(leb128, [size, 6, n, trailing, *lengths])) + stream
        with pytest.raises(Damaged, match="damaged:"):
            compressor.restore(body + zlib.crc32(body).to_bytes(4))


@pytest.mark.parametrize("shape, digest", FIXED, ids=[shape.positions for shape, _ in FIXED])
def test_the_bytes_of_a_file_never_change(shape, digest):
    """A model of fractions that every machine has, and bytes of every kind."""
    tokenizer = TOKENIZERS[0]
    model = GPT(shape, tokenizer.vocab_size).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_((torch.arange(parameter.numel()) * 7919 % 2001 - 1000).view(parameter.shape) / 2000)
    data = "abcdef ghi\n中éé🙂".encode() * 20 + b"\xff\0"
    engine, _ = choose_engine(model, symbols_of(tokenizer))
    packed = Compressor(model, tokenizer, engine=engine).compress(data, stride=5)
    assert hashlib.sha256(packed).hexdigest()[:16] == digest


def test_the_wrong_model_is_named():
    (compressor, *_) = compressors()
    packed = compressor.compress(b"abc", stride=6)
    other = Tokenizer("\n abcdefghiéx")
    model = new_model(SHAPES[0], other.vocab_size)
    engine, _ = choose_engine(model, other.vocab_size)
    with pytest.raises(WrongModel, match=packed[5:13].hex()):
        Compressor(model, other, engine=engine).restore(packed)
    assert model_sha256(model, other) != model_sha256(model, TOKENIZERS[0])


def test_other_files_and_later_formats_are_recognised():
    (compressor, *_) = compressors()
    packed = compressor.compress(b"abc", stride=6)
    for other, message in ((b"", "not a file"), (b"PK\3\4", "not a file"), (b"CGPT\2" + packed[5:], "its format is 2")):
        with pytest.raises(Damaged, match=message):
            compressor.restore(other)


def test_the_overhead_is_small():
    (compressor, *_) = compressors()
    assert len(compressor.compress(b"", stride=6)) == HEAD + 5 + 4
