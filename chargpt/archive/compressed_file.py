"""The format of a compressed file, and its way to the original and back.

magic and version       5 bytes: CGPT, and 1; the version also means the arithmetic and the coder
model                  32 bytes: SHA-256 of its shape, vocabulary and weights
original               16 bytes: BLAKE2b of its content
whole numbers          LEB128: the original's length in bytes, the stride, the known characters, the escaped bytes after
                       the last of them, and the length of each segment's stream
streams                one after another
checksum                4 bytes: CRC-32 of everything before it
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator

from chargpt.archive.compression import Coding, decode, encode, join_units, segment_lengths, split_units
from chargpt.archive.exact_model import Engine
from chargpt.files import leb128
from chargpt.model import GPT
from chargpt.sampling.prompt import first_id
from chargpt.text.tokenizer import Tokenizer

MAGIC = b"CGPT\x01"
HEAD = len(MAGIC) + 32 + 16
# Bytes of the longest number: 63 bits.
LONGEST_NUMBER = 9


class Damaged(ValueError):
    """The file is not a whole compressed file. The message says what is wrong with it."""


class WrongModel(ValueError):
    """The file was compressed with another model. The message is the beginning of that model's SHA-256."""


class Compressor:
    """Compresses bytes with a model, and restores them."""

    def __init__(self, model: GPT, tokenizer: Tokenizer, *, engine: Engine) -> None:
        self._tokenizer, self._engine = tokenizer, engine
        self._block_size = model.config.block_size
        self._model_id = model_sha256(model, tokenizer)

    def compress(self, data: bytes, *, stride: int, progress: Callable[[int], None] = lambda _: None) -> bytes:
        """The compressed file of `data`. It is read back before it is returned. Raises RuntimeError if that fails.

        `progress` is called with the number of characters that were written or read back since its last call.
        """
        units = split_units(data, self._tokenizer)
        streams = encode(units, self._coding(stride), progress=progress)
        numbers = [len(data), stride, len(units.ids), int(units.counts[-1]), *map(len, streams)]
        head = MAGIC + self._model_id + _checksum(data) + b"".join(map(leb128, numbers))
        packed = head + b"".join(streams)
        packed += zlib.crc32(packed).to_bytes(4)
        if self.restore(packed, progress=progress) != data:
            raise RuntimeError("the compressed file does not give the original back")
        return packed

    def restore(self, packed: bytes, *, progress: Callable[[int], None] = lambda _: None) -> bytes:
        """The original of the compressed file `packed`. Raises Damaged or WrongModel, and never returns anything else."""
        if not packed.startswith(MAGIC[:4]):
            raise Damaged("not a file that compress has written")
        if not packed.startswith(MAGIC):
            raise Damaged(f"its format is {packed[4] if len(packed) > 4 else 'missing'}, and this version reads {MAGIC[4]}")
        if len(packed) < HEAD + 4 or zlib.crc32(packed[:-4]).to_bytes(4) != packed[-4:]:
            raise Damaged("damaged or cut off: its checksum is wrong")
        model_id = packed[len(MAGIC) : len(MAGIC) + 32]
        if model_id != self._model_id:
            raise WrongModel(model_id.hex()[:16])
        try:
            data = self._restore(packed[HEAD:-4], progress)
        except ValueError as error:
            raise Damaged(f"damaged: {error}") from None
        if _checksum(data) != packed[HEAD - 16 : HEAD]:
            raise Damaged("damaged: what it holds is not the original")
        return data

    def _restore(self, body: bytes, progress: Callable[[int], None]) -> bytes:
        """The content of the numbers and streams in `body`. Raises ValueError."""
        numbers = _numbers(body)
        (size, _), (stride, _), (n, _), (trailing, at) = (next(numbers) for _ in range(4))
        if not 1 <= stride <= self._block_size or n + trailing > size:
            raise ValueError("its numbers contradict each other")
        lengths = []
        for _ in segment_lengths(n):
            length, at = next(numbers)
            lengths.append(length)
        if at + sum(lengths) != len(body):
            raise ValueError("its streams do not fill it")
        streams = []
        for length in lengths:
            streams.append(body[at : at + length])
            at += length
        coding = self._coding(stride)
        units = decode(streams, coding, n=n, trailing=trailing, most_escaped=size - n, progress=progress)
        return join_units(units, self._tokenizer)

    def _coding(self, stride: int) -> Coding:
        escapes = self._tokenizer.characters is not None
        start = first_id(self._tokenizer)
        return Coding(engine=self._engine, block_size=self._block_size, stride=stride, first_id=start, escapes=escapes)


def model_sha256(model: GPT, tokenizer: Tokenizer) -> bytes:
    """What identifies a model: the SHA-256 of its shape, its vocabulary and its weights, whatever file holds them."""
    config = model.config
    shape = [config.n_layer, config.n_head, config.n_embd, config.block_size, config.positions, config.bias]
    digest = hashlib.sha256(json.dumps([shape, tokenizer.characters, tokenizer.folded]).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + b"\0")
        digest.update(tensor.detach().cpu().contiguous().numpy().astype("<f4").tobytes())
    return digest.digest()


def _checksum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _numbers(data: bytes) -> Iterator[tuple[int, int]]:
    """The numbers at the beginning of `data`, each with where it ends. Raises ValueError where there is none."""
    value = shift = 0
    for end, byte in enumerate(data, 1):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value, end
            value = shift = 0
        elif shift >= 7 * LONGEST_NUMBER:
            raise ValueError("one of its numbers is too long")
    raise ValueError("it ends too early")
