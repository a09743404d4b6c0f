"""The header of a safetensors file, for programs that write its tensors one at a time.

The writer of the library makes two copies of all tensors before it writes the first byte. The format: the length of a JSON
header as 8 bytes, the header, then the tensors one after another, row by row, little-endian.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

# The names of the types, in the order in which the library writes tensors.
DTYPES = {
    torch.int64: "I64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def in_file_order(tensors: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
    """Names and tensors in the order in which the library writes them: wide types first, then by name."""
    order = {dtype: place for place, dtype in enumerate(DTYPES)}
    return sorted(tensors.items(), key=lambda item: (order[item[1].dtype], item[0]))


def tensor_header(entries: Iterable[tuple[str, torch.dtype, Sequence[int]]], metadata: Mapping[str, str]) -> bytes:
    """The first bytes of a file with these tensors (name, type, shape), which follow in this order."""
    described: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, dtype, shape in entries:
        start, end = end, end + dtype.itemsize * torch.Size(shape).numel()
        described[name] = {"dtype": DTYPES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    header = json.dumps(described, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % 8)  # tensors begin at a multiple of 8
    return len(header).to_bytes(8, "little") + header


def tensor_bytes(tensor: Tensor) -> memoryview:
    """The bytes of a tensor, row by row. A tensor on another device is copied."""
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
