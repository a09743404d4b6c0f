"""The tensors of a safetensors file: read as numpy arrays, and written one at a time.

Torch is imported only to make tensors of what is read. The writer of the library makes two copies of all tensors before it
writes the first byte. The format: the length of a JSON header as 8 bytes, the header, then the tensors one after another, row
by row, little-endian.
"""

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import safetensors

if TYPE_CHECKING:
    from torch import Tensor

# The names of torch's types, in the order in which the library writes tensors.
DTYPES = {
    "int64": "I64",
    "float64": "F64",
    "float32": "F32",
    "int32": "I32",
    "bfloat16": "BF16",
    "float16": "F16",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}
NAMES = {stored: name for name, stored in DTYPES.items()}
INFINITE = 0x7F80  # the bits of the exponent of bfloat16; all are set in what is not finite


class StoredTensor(NamedTuple):
    """A tensor. Numpy has no bfloat16: its numbers are then the bits, as int16."""

    dtype: str  # as torch names it
    numbers: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.numbers.shape

    def is_finite(self) -> bool:
        """Whether all numbers are finite."""
        if self.dtype == "bfloat16":
            return not ((self.numbers & INFINITE) == INFINITE).any()
        return bool(np.isfinite(self.numbers).all())

    def tensor(self) -> "Tensor":
        """The tensor of torch, in the same memory."""
        import torch

        tensor = torch.from_numpy(self.numbers)
        return tensor.view(torch.bfloat16) if self.dtype == "bfloat16" else tensor


def read_tensors(data: bytes) -> dict[str, StoredTensor]:
    """The tensors of a safetensors file, unchecked, by name. Raises an error of any kind for data that is not such a file."""
    tensors = {}
    for name, entry in safetensors.deserialize(data):
        dtype = NAMES[entry["dtype"]]
        numbers = np.frombuffer(entry["data"], "int16" if dtype == "bfloat16" else dtype)
        tensors[name] = StoredTensor(dtype, numbers.reshape(entry["shape"]))
    return tensors


def file_pieces(tensors: "Mapping[str, Tensor]", metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """The content of a safetensors file: the header, then each tensor. One on another device, or not in rows, is copied."""
    import torch

    order = {dtype: place for place, dtype in enumerate(DTYPES)}
    ordered = sorted(tensors.items(), key=lambda item: (order[dtype_name(item[1].dtype)], item[0]))
    described: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, tensor in ordered:
        start, end = end, end + tensor.nbytes
        described[name] = {"dtype": DTYPES[dtype_name(tensor.dtype)], "shape": [*tensor.shape], "data_offsets": [start, end]}
    header = json.dumps(described, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % 8)  # tensors begin at a multiple of 8
    yield len(header).to_bytes(8, "little") + header
    for _, tensor in ordered:
        yield tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data


def dtype_name(dtype: object) -> str:
    """The name of a type of torch or of numpy: float32, for example."""
    return str(dtype).removeprefix("torch.")
