"""Files that are written a tensor at a time are those that the library writes."""

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from chargpt.runs.stored_tensor import DTYPES, file_pieces

shapes = st.lists(st.integers(0, 4), max_size=3)
types = st.sampled_from([getattr(torch, name) for name in DTYPES])
tensors = st.dictionaries(st.text(max_size=5), st.tuples(types, shapes), max_size=6)


def written(content: dict[str, torch.Tensor]) -> bytes:
    return b"".join(file_pieces(content, {"format": "pt"}))


@given(tensors)
def test_any_tensors_are_read_by_the_library_as_they_were(described):
    described.pop("__metadata__", None)
    content = {name: torch.randint(0, 2, shape).to(dtype) for name, (dtype, shape) in described.items()}
    read = safetensors.torch.load(written(content))
    assert read.keys() == content.keys()
    assert all(read[name].dtype == tensor.dtype and torch.equal(read[name], tensor) for name, tensor in content.items())


def test_the_bytes_are_those_of_the_library():
    content = {f"{name}.weight": torch.randn(3, number) for number, name in enumerate(["b", "a", "\u4e2d", '"', "h.10", "h.2"])}
    content |= {"step": torch.tensor(7), "half": torch.ones(3, dtype=torch.bfloat16), "flags": torch.tensor([True, False])}
    assert written(content) == safetensors.torch.save(content, {"format": "pt"})


@pytest.mark.parametrize("order", [lambda matrix: matrix.t(), lambda matrix: matrix[:, ::2]])
def test_a_tensor_in_another_order_is_written_row_by_row(order):
    tensor = order(torch.arange(12.0).reshape(3, 4))
    assert written({"a": tensor}).endswith(tensor.numpy().tobytes())
