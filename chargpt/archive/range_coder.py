"""A range coder: writes symbols of known integer frequencies in the fewest bytes, and reads them back.

G. N. N. Martin, "Range encoding: an algorithm for removing redundancy from a digitised message" (1979). Whole numbers only, so
it is the same everywhere. A symbol of frequency f out of a total costs log2(total / f) bits, and all of them together less than
two bytes more.
"""

LIMIT = 2**64
TAIL = 8  # bytes
LEAST = 2**56  # the range never falls below it, so a total of up to 2^48 costs next to nothing in precision


class RangeEncoder:
    """Collects symbols; `finish` returns the bytes."""

    def __init__(self) -> None:
        self._low, self._range = 0, LIMIT - 1
        self._bytes = bytearray()

    def encode(self, start: int, size: int, total: int) -> None:
        """Append the symbol that takes [start, start + size) of [0, total); total is below 2^48."""
        part = self._range // total
        self._low += part * start
        self._range = part * size
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
        self._part = self._range // total
        return min(self._code // self._part, total - 1)

    def decode(self, start: int, size: int) -> None:
        """Go on to the symbol after the one that takes [start, start + size)."""
        self._code -= self._part * start
        self._range = self._part * size
        while self._range < LEAST:
            if self._at >= len(self._data) + TAIL:
                raise ValueError("a stream ends before its symbols do")
            byte = self._data[self._at] if self._at < len(self._data) else 0
            self._code = (self._code << 8 | byte) & LIMIT - 1
            self._at += 1
            self._range <<= 8
