"""Reads a pickle of plain values, and a file of torch.save, without running anything that they name.

A pickle is a program. Here it may use the instructions for plain values alone, at most MAX_INSTRUCTIONS of them, and call only
the functions of ours in STAND_INS. A file of torch.save is a zip file with a pickle, data.pkl, and the numbers of the tensors,
which stay in the file until they are used.
"""

import io
import math
import pickle
import pickletools
import re
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chargpt.errors import UserError
from chargpt.terminal import shown

# Bytes of a pickle, without the numbers of tensors.
MAX_PICKLED = 32 << 20
# Instructions of a pickle. Each takes at most some hundred bytes of memory; a vocabulary has about ten for a character.
MAX_INSTRUCTIONS = 2_000_000
# Bytes of the directory of a zip file; it has about 80 for a tensor.
MAX_DIRECTORY = 4 << 20
MAX_DIMENSIONS = 8
ALLOWED = """PROTO STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 FLOAT BINFLOAT UNICODE BINUNICODE
    SHORT_BINUNICODE BINBYTES SHORT_BINBYTES EMPTY_DICT DICT SETITEM SETITEMS EMPTY_LIST LIST APPEND APPENDS BINPUT
    LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE BINPERSID"""
DTYPES = {
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "DoubleStorage": torch.float64,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}


@dataclass(frozen=True, eq=False)
class SavedTensor:
    """A tensor in a file of torch.save."""

    numbers: Callable[[], Tensor]  # reads all numbers of its entry, as a vector
    shape: tuple[int, ...]
    strides: tuple[int, ...] = (1,)
    offset: int = 0

    def read(self) -> Tensor:
        """The tensor."""
        return self.numbers().as_strided(self.shape, self.strides, self.offset)


def _tensor(entry: SavedTensor, offset: int, shape: list[int], strides: list[int], *_: Any) -> SavedTensor:
    """A tensor with no more numbers than its entry has. With a stride of 0, a few bytes could be a tensor of any size."""
    if len(entry.shape) != 1:
        raise ValueError("it has a tensor in the place of an entry")
    whole = all(type(number) is int and number >= 0 for number in (offset, *shape, *strides))
    if not whole or len(shape) != len(strides) or len(shape) > MAX_DIMENSIONS:
        raise ValueError("it has a tensor whose shape is not one of whole numbers")
    end = 1 + offset + sum((n - 1) * stride for n, stride in zip(shape, strides))
    if max(math.prod(shape), end) > entry.shape[0]:
        raise ValueError(f"it has a tensor of {math.prod(shape):,} numbers in an entry of {entry.shape[0]:,}")
    return SavedTensor(entry.numbers, tuple(shape), tuple(strides), offset)


def _number(dtype: str, data: bytes) -> bool | int | float:
    """A number of numpy."""
    if dtype not in ("b1", "i4", "i8", "f4", "f8"):
        raise ValueError("it has a number of another type")
    return np.frombuffer(data, f"<{dtype}")[0].item()


class _Namespace(dict[Any, Any]):
    """The values of an argparse.Namespace."""


STAND_INS: dict[str, Any] = {
    "collections OrderedDict": lambda: {},
    "argparse Namespace": lambda: _Namespace(),
    "numpy dtype": lambda code, *_: code,
    "numpy.core.multiarray scalar": _number,
    "numpy._core.multiarray scalar": _number,
    "_codecs encode": lambda text, _: text[:8].encode("latin-1"),  # the bytes of a number in an older pickle
    "torch._utils _rebuild_tensor_v2": _tensor,
    "torch._utils _rebuild_parameter": lambda tensor, *_: tensor,
    **{f"torch {name}": dtype for name, dtype in DTYPES.items()},
}


class _Counted(io.BytesIO):
    """A pickle whose instructions are counted: each is read as one byte."""

    instructions = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.instructions += size == 1
        if self.instructions > MAX_INSTRUCTIONS:
            raise ValueError(f"it has more than {MAX_INSTRUCTIONS:,} instructions")
        return super().read(size)


class _Unpickler(pickle._Unpickler):
    """In Python: the one in C keeps objects by number in an array, and a number of 4 bytes would make it 32 GB large."""

    stack: list[Any]
    memo: dict[int, Any]
    readline: Callable[[], bytes]
    file: _Counted
    refer: Callable[[Any], Any] | None = None  # makes a value of a reference to what is outside of the pickle

    def find_class(self, module: str, name: str) -> Any:
        if f"{module} {name}" not in STAND_INS:
            raise ValueError(f"it names {module} {name}, which is not allowed")
        return STAND_INS[f"{module} {name}"]

    def persistent_load(self, pid: Any) -> Any:
        if self.refer is None:
            raise ValueError("it refers to another file")
        return self.refer(pid)

    def list_of(self, count: int) -> None:
        """For a tuple, which could be a key: the hash of one that contains another one twice, and so on, takes forever."""
        values = [self.stack.pop() for _ in range(count)]
        self.stack.append(values[::-1])

    def build(self) -> None:
        """The values of a Namespace; attributes of other objects, such as the version of a dictionary, are left out."""
        values = self.stack.pop()
        if isinstance(self.stack[-1], _Namespace):
            self.file.instructions += len(values)  # each is copied
            self.stack[-1].update(values)

    def put(self) -> None:
        """Keep the object under a number that is text."""
        self.memo[_bounded(int(self.readline()))] = self.stack[-1]

    def whole_number(self, load: Callable[[Any], None]) -> None:
        """A whole number, as `load` reads it."""
        load(self)
        _bounded(self.stack[-1])


def _bounded(number: int) -> int:
    """A number of at most 64 bits. Multiples of 2**61 - 1 have one hash; a dictionary of many takes forever."""
    if abs(number) >= 2**64:
        raise ValueError("it has a whole number of more than 64 bits")
    return number


_load: dict[int, Any] = pickle._Unpickler.dispatch
_instructions: dict[int, Any] = {
    **{code: _load[code] for code in (getattr(pickle, name)[0] for name in ALLOWED.split())},
    pickle.FRAME[0]: lambda self: self.read(8),  # what is in the frame is read without it, and so counted
    pickle.EMPTY_TUPLE[0]: _load[pickle.EMPTY_LIST[0]],
    pickle.TUPLE[0]: _load[pickle.LIST[0]],
    pickle.TUPLE1[0]: lambda self: self.list_of(1),
    pickle.TUPLE2[0]: lambda self: self.list_of(2),
    pickle.TUPLE3[0]: lambda self: self.list_of(3),
    pickle.NEWOBJ[0]: _load[pickle.REDUCE[0]],
    pickle.BUILD[0]: _Unpickler.build,
    pickle.PUT[0]: _Unpickler.put,
    pickle.INT[0]: lambda self: self.whole_number(_load[pickle.INT[0]]),
    pickle.LONG[0]: lambda self: self.whole_number(_load[pickle.LONG[0]]),
    pickle.LONG1[0]: lambda self: self.whole_number(_load[pickle.LONG1[0]]),
}
_Unpickler.dispatch = _instructions


def unpickled(data: bytes, refer: Callable[[Any], Any] | None = None) -> Any:
    """The value that a pickle describes; tuples are lists.

    Raises whatever a wrong pickle raises.
    """
    file = _Counted(data)
    unpickler = _Unpickler(file)
    unpickler.file, unpickler.refer = file, refer
    try:
        return unpickler.load()
    except KeyError as error:
        (code,) = error.args
        name = {op.code: op.name for op in pickletools.opcodes}.get(chr(code), f"number {code}")
        raise ValueError(f"it has the instruction {name}, which is not allowed") from None


def read_torch_file(path: Path) -> Any:
    """What torch.save has written, with a SavedTensor for each tensor. Raises UserError, or whatever a wrong file raises."""
    with open(path, "rb") as file:
        end = zipfile._EndRecData(file)  # type: ignore[attr-defined]  # before ZipFile makes an object of each entry
    if end and end[zipfile._ECD_SIZE] > MAX_DIRECTORY:  # type: ignore[attr-defined]
        raise UserError(f"{shown(path)}: not as torch.save writes it; save the checkpoint again")
    archive = zipfile.ZipFile(path)  # stays open for the tensors
    entries = {entry.filename: entry for entry in archive.infolist()}
    # A packed entry could grow without limit when it is read, and so could entries that share their bytes.
    plain = len(entries) == len(archive.infolist())
    plain = plain and all(entry.compress_type == zipfile.ZIP_STORED for entry in entries.values())
    plain = plain and sum(entry.file_size for entry in entries.values()) <= path.stat().st_size
    pickles = [name for name in entries if re.fullmatch("[^/]+/data.pkl", name)]
    if not plain or len(pickles) != 1 or entries[pickles[0]].file_size > MAX_PICKLED:
        raise UserError(f"{shown(path)}: not as torch.save writes it; save the checkpoint again")
    if damaged := archive.testzip():
        raise UserError(f"{shown(path)}: damaged, the checksum of {damaged:.80} differs; copy the file again")
    folder = pickles[0].removesuffix("data.pkl")
    order = archive.read(f"{folder}byteorder").decode() if f"{folder}byteorder" in entries else sys.byteorder
    if order != sys.byteorder:
        raise UserError(f"{shown(path)}: saved on a machine with another byte order; load and save it there in safetensors")

    def stored(reference: Any) -> SavedTensor:
        _, dtype, key, _, count = reference
        entry = entries.get(f"{folder}data/{key}") if type(key) is str else None  # a list may be endless as text
        if type(count) is not int or entry is None or entry.file_size != count * dtype.itemsize:
            raise ValueError("the size of an entry differs from that of its tensor")
        return SavedTensor(lambda: torch.frombuffer(bytearray(archive.read(entry)), dtype=dtype), (count,))

    return unpickled(archive.read(pickles[0]), stored)
