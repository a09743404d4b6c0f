"""The tensors of a safetensors file as numpy arrays. Torch is imported only to make tensors of them."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import safetensors

from chargpt.runs.tensor_header import DTYPES

if TYPE_CHECKING:
    from torch import Tensor

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
