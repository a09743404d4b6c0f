"""The header of a safetensors file, for programs that write its tensors one at a time.

The writer of the library makes two copies of all tensors before it writes the first byte. The format: the length of a JSON
header as 8 bytes, the header, then the tensors one after another, row by row, little-endian.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # reading a checkpoint needs no torch
    import torch
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


def in_file_order(tensors: "Mapping[str, Tensor]") -> "list[tuple[str, Tensor]]":
    """Names and tensors in the order in which the library writes them: wide types first, then by name."""
    order = {dtype: place for place, dtype in enumerate(DTYPES)}
    return sorted(tensors.items(), key=lambda item: (order[dtype_name(item[1].dtype)], item[0]))


def tensor_header(entries: "Iterable[tuple[str, torch.dtype, Sequence[int]]]", metadata: Mapping[str, str]) -> bytes:
    """The first bytes of a file with these tensors (name, type, shape), which follow in this order."""
    described: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, dtype, shape in entries:
        start, end = end, end + dtype.itemsize * math.prod(shape)
        described[name] = {"dtype": DTYPES[dtype_name(dtype)], "shape": list(shape), "data_offsets": [start, end]}
    header = json.dumps(described, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % 8)  # tensors begin at a multiple of 8
    return len(header).to_bytes(8, "little") + header


def dtype_name(dtype: object) -> str:
    """The name of a type of torch or of numpy: float32, for example."""
    return str(dtype).removeprefix("torch.")


def tensor_bytes(tensor: "Tensor") -> memoryview:
    """The bytes of a tensor, row by row. A tensor on another device is copied."""
    import torch

    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
