"""Lossless compression with a model: each known character by the frequency that the model gives it, in a range coder.

A file becomes `Units`: characters that the model knows, and the bytes between them. The characters are cut into segments,
which are compressed side by side: a batch of them keeps the processor busy when the file is read back one character at a time.
Each segment starts without context, after the same id as a sample, and has its own stream of the range coder.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from chargpt.archive.exact_model import Engine
from chargpt.text.tokenizer import Tokenizer, code_points, utf8_lengths

# The range coder computes with numbers below this.
LIMIT = 2**64
# Zero bytes that a decoder may read after the end of a stream.
TAIL = 8
# The range never falls below this, so a total of up to 2^48 costs next to nothing in precision.
LEAST = 2**56
# Known characters of a segment. A segment costs about 5 bytes: 0.2 % of its size at 2.5 bits a character.
SEGMENT = 2**13
# Segments of a file; more in a batch would not be faster.
MAX_SEGMENTS = 32
# Frequencies that the engine computes at once.
NUMBERS_AT_ONCE = 2**22
# Characters that the encoder gives the engine at once.
ROWS_AT_ONCE = 2**10
# The total of the flags for escaped bytes. Each flag moves their frequency by 1 / 2^ADAPT of the rest.
FLAGS = 2**16
ADAPT = 4
# Each escaped byte adds STEP to its count. When the counts add up to more than HALVE, they are halved.
STEP = 24
HALVE = 2**16


@dataclass(frozen=True, kw_only=True)
class Units:
    """A file: its known characters, and the bytes of everything else, each group in front of a known character."""

    ids: np.ndarray  # of the known characters, (n,) int64
    escaped: bytes  # the bytes of everything else, one after another
    counts: np.ndarray  # how many of them come before each known character, and after the last one, (n + 1,) int64


def symbols_of(tokenizer: Tokenizer) -> int:
    """The number of ids that stand for one character or byte each: all but that of the folded characters."""
    return tokenizer.vocab_size - tokenizer.folded


def split_units(data: bytes, tokenizer: Tokenizer) -> Units:
    """The units of any bytes. Nothing is normalised. What is not UTF-8, and what is missing from the vocabulary, is escaped."""
    if tokenizer.characters is None:
        ids = np.frombuffer(data, np.uint8).astype(np.int64)
        return Units(ids=ids, escaped=b"", counts=np.zeros(len(ids) + 1, np.int64))
    points = code_points(data.decode("utf-8", "surrogateescape"))  # a byte that is not UTF-8 becomes one of 128 surrogates
    ids = np.take(tokenizer.table(), points, mode="clip").astype(np.int64)
    known = (ids >= 0) & (ids < symbols_of(tokenizer))
    lengths = utf8_lengths(points)
    escaped = np.frombuffer(data, np.uint8)[np.repeat(~known, lengths)].tobytes()
    before = np.cumsum(np.where(known, 0, lengths))[known]
    counts = np.diff(before, prepend=0, append=len(escaped))
    return Units(ids=ids[known], escaped=escaped, counts=counts)


def join_units(units: Units, tokenizer: Tokenizer) -> bytes:
    """The bytes that `split_units` was given."""
    if tokenizer.characters is None:
        return units.ids.astype(np.uint8).tobytes()
    characters = [c.encode() for c in tokenizer.characters]
    chunks, at, done = [], 0, 0
    for i in np.flatnonzero(units.counts).tolist():
        chunks += [characters[i] for i in units.ids[done:i].tolist()]
        chunks.append(units.escaped[at : at + int(units.counts[i])])
        at, done = at + int(units.counts[i]), i
    chunks += [characters[i] for i in units.ids[done:].tolist()]
    return b"".join(chunks)


class RangeEncoder:
    """Collects symbols; `finish` returns the bytes."""

    def __init__(self) -> None:
        self._low, self._range = 0, LIMIT - 1
        self._bytes = bytearray()

    def encode(self, start: int, size: int, total: int) -> None:
        """Append the symbol that takes [start, start + size) of [0, total); total is below 2^48."""
        unit = self._range // total
        self._low += unit * start
        self._range = unit * size
        if self._low >= LIMIT:
            self._low -= LIMIT
            self._carry()
        while self._range < LEAST:
            self._bytes.append(self._low >> 56)
            self._low = self._low << 8 & LIMIT - 1
            self._range <<= 8

    def _carry(self) -> None:
        """Add one to the bytes that are written already."""
        at = len(self._bytes) - 1
        while self._bytes[at] == 255:
            self._bytes[at] = 0
            at -= 1
        self._bytes[at] += 1

    def finish(self) -> bytes:
        """The shortest bytes that mean the symbols; the decoder reads up to TAIL zeros after them."""
        for length in range(1, 9):
            unit = 1 << 64 - 8 * length
            number = -(-self._low // unit) * unit  # the first multiple in the range
            if number < self._low + self._range:
                break
        if number >= LIMIT:
            number -= LIMIT
            self._carry()
        return bytes(self._bytes) + number.to_bytes(8)[:length].rstrip(b"\0")


class RangeDecoder:
    """Reads the symbols that a RangeEncoder has written. Damaged bytes give other symbols.

    Raises ValueError when it is asked for more symbols than the bytes can mean, so that a wrong count ends.
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 8
        self._code, self._range = int.from_bytes(data[:8].ljust(8, b"\0")), LIMIT - 1

    def target(self, total: int) -> int:
        """A number of [0, total) inside the next symbol's interval. Call `decode` next."""
        self._unit = self._range // total
        return min(self._code // self._unit, total - 1)

    def decode(self, start: int, size: int) -> None:
        """Go on to the symbol after the one that takes [start, start + size)."""
        self._code -= self._unit * start
        self._range = self._unit * size
        while self._range < LEAST:
            if self._at >= len(self._data) + TAIL:
                raise ValueError("a stream ends before its symbols do")
            byte = self._data[self._at] if self._at < len(self._data) else 0
            self._code = (self._code << 8 | byte) & LIMIT - 1
            self._at += 1
            self._range <<= 8


@dataclass(frozen=True, kw_only=True)
class Coding:
    """What both sides know: the engine, the window and its stride, the id that a segment starts after, and its alphabet."""

    engine: Engine
    block_size: int
    stride: int
    first_id: int
    escapes: bool  # whether bytes may be escaped; a vocabulary of bytes needs none


class Escapes:
    """Adaptive frequencies of a segment: how often bytes were escaped recently, and which."""

    def __init__(self) -> None:
        self._escaped = FLAGS >> ADAPT  # the frequency of the flag for an escaped byte, out of FLAGS
        self._bytes = [1] * 256

    def flag(self, escaped: bool) -> tuple[int, int, int]:
        """Start, size and total of the flag for a known character or for an escaped byte."""
        known = FLAGS - self._escaped
        return (known, self._escaped, FLAGS) if escaped else (0, known, FLAGS)

    def is_escaped(self, target: int) -> bool:
        """Which flag a `RangeDecoder.target` of FLAGS belongs to."""
        return target >= FLAGS - self._escaped

    def count(self, escaped: bool) -> None:
        """A flag was coded. Neither frequency falls below 2^ADAPT - 1."""
        self._escaped += (FLAGS - self._escaped) >> ADAPT if escaped else -(self._escaped >> ADAPT)

    def byte(self, value: int) -> tuple[int, int, int]:
        """Start, size and total of an escaped byte."""
        return sum(self._bytes[:value]), self._bytes[value], sum(self._bytes)

    def find(self, target: int) -> int:
        """The byte that a `RangeDecoder.target` of the total belongs to."""
        return bisect_right(list(accumulate(self._bytes)), target)

    @property
    def total(self) -> int:
        """The total of the bytes."""
        return sum(self._bytes)

    def count_byte(self, value: int) -> None:
        """A byte was coded."""
        self._bytes[value] += STEP
        if sum(self._bytes) > HALVE:
            self._bytes = [(count + 1) // 2 for count in self._bytes]


def segment_lengths(n: int) -> list[int]:
    """The lengths of the segments of n known characters: as even as possible, longer ones first."""
    segments = min(MAX_SEGMENTS, max(1, n // SEGMENT))
    return [n // segments + (i < n % segments) for i in range(segments)]


def encode(units: Units, coding: Coding, *, progress: Callable[[int], None]) -> list[bytes]:
    """The stream of each segment. `progress` is called with the number of characters that are done since the last call."""
    streams, start, escaped_from = [], 0, 0
    for length in segment_lengths(len(units.ids)):
        encoder, escapes = RangeEncoder(), Escapes()
        counts = units.counts[start : start + length]
        escaped = units.escaped[escaped_from : escaped_from + int(counts.sum())]
        at = 0
        ids = units.ids[start : start + length]
        for position, (below, size, total) in enumerate(_intervals(ids, coding, progress)):
            for value in escaped[at : at + int(counts[position])]:
                _encode_byte(encoder, escapes, value)
            at += int(counts[position])
            if coding.escapes:
                encoder.encode(*escapes.flag(False))
                escapes.count(False)
            encoder.encode(below, size, total)
        start, escaped_from = start + length, escaped_from + len(escaped)
        if start == len(units.ids):
            for value in units.escaped[escaped_from:]:  # those after the last known character
                _encode_byte(encoder, escapes, value)
                progress(1)
        streams.append(encoder.finish())
    return streams


def _encode_byte(encoder: RangeEncoder, escapes: Escapes, value: int) -> None:
    encoder.encode(*escapes.flag(True))
    escapes.count(True)
    encoder.encode(*escapes.byte(value))
    escapes.count_byte(value)


def _intervals(ids: np.ndarray, coding: Coding, progress: Callable[[int], None]) -> Iterator[tuple[int, int, int]]:
    """Start, size and total of each id of a segment."""
    inputs = torch.from_numpy(np.concatenate(([coding.first_id], ids)).astype(np.int64))
    for windows, wanted, first in _windows(inputs, coding):
        frequencies = coding.engine.read(windows, start=0, wanted=wanted).flatten(0, 1)  # (rows, symbols)
        targets = torch.from_numpy(ids[first : first + len(frequencies)])[:, None]
        sums = frequencies.cumsum(dim=1)
        sizes, ends = frequencies.gather(1, targets), sums.gather(1, targets)
        progress(len(targets))
        yield from torch.cat((ends - sizes, sizes, sums[:, -1:]), dim=1).tolist()


def _windows(inputs: Tensor, coding: Coding) -> Iterator[tuple[Tensor, int, int]]:
    """Windows of a segment, (B, T), of which the last `wanted` ids are read for the ids from number `first` on.

    They are those of `score`: the decoder below reads the same ids before each character.
    """
    size, stride, n = coding.block_size, coding.stride, len(inputs) - 1  # the last input is not needed
    if n == 0:
        return
    yield inputs[None, : min(size, n)], min(size, n), 0
    starts = list(range(stride, n - size + 1, stride))
    batch = max(1, min(ROWS_AT_ONCE // size, NUMBERS_AT_ONCE // (stride * coding.engine.symbols)))
    for i in range(0, len(starts), batch):
        group = starts[i : i + batch]
        windows = torch.stack([inputs[start : start + size] for start in group])
        yield windows, stride, group[0] + size - stride
    start = starts[-1] + stride if starts else stride
    done = start + size - stride
    if done < n:
        yield inputs[None, start:n], n - done, done


def decode(
    streams: list[bytes], coding: Coding, *, n: int, trailing: int, most_escaped: int, progress: Callable[[int], None]
) -> Units:
    """The units of `streams`: n known characters, and `trailing` escaped bytes after them.

    Raises ValueError, at the latest after `most_escaped` escaped bytes, if the streams are damaged so that they cannot end.
    """
    lengths = segment_lengths(n)
    if len(lengths) != len(streams):
        raise ValueError("the number of streams is wrong")
    segments = [_Segment(stream, length, coding.escapes, most_escaped) for stream, length in zip(streams, lengths)]
    window = torch.full((len(segments), 1), coding.first_id)
    start = 0  # the position of the first id that is not read yet
    for position in range(lengths[0]):
        active = sum(position < length for length in lengths)  # the first ones: these are the longest
        if active < len(window):
            window, start = window[:active], 0
        if window.size(1) > coding.block_size:
            window, start = window[:, coding.stride :], 0
        frequencies = coding.engine.read(window[:, start:], start=start, wanted=1)[:, 0]
        start = window.size(1)
        sums = frequencies.cumsum(dim=1).numpy()
        new = [segment.next(row) for segment, row in zip(segments, sums)]
        window = torch.cat((window, torch.tensor(new)[:, None]), dim=1)
        progress(active)
    for _ in range(trailing):
        segments[-1].next_byte()
        progress(1)
    return Units(
        ids=np.concatenate([np.array(segment.ids, np.int64) for segment in segments]),
        escaped=b"".join(bytes(segment.escaped) for segment in segments),
        counts=np.array([*(count for segment in segments for count in segment.counts), trailing], np.int64),
    )


class _Segment:
    """A segment that is being decoded."""

    def __init__(self, stream: bytes, length: int, has_escapes: bool, most_escaped: int) -> None:
        self._decoder, self._escapes = RangeDecoder(stream), Escapes()
        self._has_escapes, self._most_escaped = has_escapes, most_escaped
        self.ids: list[int] = []
        self.counts: list[int] = []
        self.escaped = bytearray()

    def next(self, sums: np.ndarray) -> int:
        """The next known id, given the sums of the frequencies of all symbols, (symbols,)."""
        before = len(self.escaped)
        while self._has_escapes and self._is_escaped():
            self._read_byte()
        self.counts.append(len(self.escaped) - before)
        target = self._decoder.target(int(sums[-1]))
        i = int(np.searchsorted(sums, target, side="right"))
        start = int(sums[i - 1]) if i else 0
        self._decoder.decode(start, int(sums[i]) - start)
        self.ids.append(i)
        return i

    def next_byte(self) -> None:
        """The next byte, which is escaped."""
        if not self._is_escaped():
            raise ValueError("a known character where there is none")
        self._read_byte()

    def _is_escaped(self) -> bool:
        escaped = self._escapes.is_escaped(self._decoder.target(FLAGS))
        self._decoder.decode(*self._escapes.flag(escaped)[:2])
        self._escapes.count(escaped)
        return escaped

    def _read_byte(self) -> None:
        if len(self.escaped) >= self._most_escaped:
            raise ValueError("more bytes than the file has")
        value = self._escapes.find(self._decoder.target(self._escapes.total))
        self._decoder.decode(*self._escapes.byte(value)[:2])
        self._escapes.count_byte(value)
        self.escaped.append(value)
