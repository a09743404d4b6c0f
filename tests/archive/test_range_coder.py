"""What the coder writes it reads back, in as many bytes as the frequencies say."""

import math
import random

import pytest

from chargpt.archive.compression import LIMIT, RangeDecoder, RangeEncoder


def random_symbols(draw: random.Random, count: int) -> list[tuple[int, int, int]]:
    """Start, size and total of symbols of very different probabilities."""
    symbols = []
    for _ in range(count):
        total = draw.randrange(1, 2 ** draw.randrange(1, 48))
        start = draw.randrange(total)
        symbols.append((start, draw.randrange(1, min(total - start, 2 ** draw.randrange(1, 48)) + 1), total))
    return symbols


def encoded(symbols: list[tuple[int, int, int]]) -> bytes:
    encoder = RangeEncoder()
    for symbol in symbols:
        encoder.encode(*symbol)
    return encoder.finish()


def read_back(data: bytes, symbols: list[tuple[int, int, int]]) -> bool:
    decoder = RangeDecoder(data)
    for start, size, total in symbols:
        if not start <= decoder.target(total) < start + size:
            return False
        decoder.decode(start, size)
    return True


@pytest.mark.parametrize("seed", range(20))
def test_any_symbols_are_read_back_and_cost_their_bits(seed):
    draw = random.Random(seed)
    symbols = random_symbols(draw, draw.randrange(600))
    data = encoded(symbols)
    assert read_back(data, symbols)
    bits = sum(math.log2(total / size) for _, size, total in symbols)
    assert 8 * len(data) <= bits + 16


@pytest.mark.parametrize("seed", range(20))
def test_carries_run_through_the_bytes_written_before(seed):
    """The highest symbol again and again keeps the interval at the upper end, where carries come from."""
    draw = random.Random(seed)
    symbols = [(2**20 - 2, 1, 2**20) if draw.random() < 0.9 else (2**20 - 1, 1, 2**20) for _ in range(50)]
    symbols += [(2**k - 1, 1, 2**k) for k in range(1, 30)] + [(1, 2, 3)] * 200
    assert read_back(encoded(symbols), symbols)


@pytest.mark.parametrize("count", range(1, 100))
def test_a_carry_out_of_the_last_bytes_is_written(count):
    """The middle third again and again: the interval contains 1/2, whose bytes are 80 00, and begins at 7f ff."""
    symbols = [(1, 1, 3)] * count
    data = encoded(symbols)
    assert read_back(data, symbols) and 8 * len(data) <= count * math.log2(3) + 16


def test_nothing_takes_no_bytes_and_certain_symbols_nothing():
    assert encoded([]) == b"" and encoded([(0, 7, 7)] * 1000) == b""


def test_damaged_bytes_give_other_symbols_until_nothing_is_left():
    draw = random.Random(0)
    for _ in range(50):
        decoder = RangeDecoder(draw.randbytes(20))
        for _, size, total in random_symbols(draw, 60):
            assert 0 <= decoder.target(total) < total
            target = decoder.target(total)
            try:
                decoder.decode(target, min(size, total - target))
            except ValueError:  # there is nothing left to read
                break
            assert 0 <= decoder._code < LIMIT


@pytest.mark.parametrize("seed", range(5))
def test_more_symbols_than_were_written_end_soon(seed):
    """A count that lies does not keep the decoder busy; zeros at the end of a stream are no part of it."""
    draw = random.Random(seed)
    for symbols in (random_symbols(draw, 50), [(0, 1, 256)] * 50):
        data = encoded(symbols)
        assert read_back(data, symbols)
        decoder = RangeDecoder(data)
        with pytest.raises(ValueError, match="ends before"):
            for _ in range(8 * len(data) + 200):
                decoder.decode(decoder.target(2), 1)
