"""safetensors files: what is written is read back to the bit by the library, and hostile files cost one line."""

import dataclasses
import json
import os
import random

import pytest
import safetensors.torch
import torch
from exchange_helpers import options_of

from chargpt.errors import UserError
from chargpt.exchange.tensor_file import HEADER_LIMIT, TensorSource, check_file, open_tensors, write
from chargpt.text.tokenizer import Tokenizer


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_source_gives_float32_of_the_expected_shape(tmp_path, dtype):
    tensor = torch.randn(3, 2).to(dtype)
    safetensors.torch.save_file({"a": tensor}, tmp_path / "x.safetensors")
    source = open_tensors(tmp_path / "x.safetensors", most_numbers=100)
    assert "a" in source and "b" not in source
    assert torch.equal(source.read("a", (3, 2)), tensor.float())
    source.check_all_read(tensor, except_for="")
    with pytest.raises(UserError, match="b is missing.*export the model again"):
        source.read("b", (1,))
    with pytest.raises(UserError, match=r"a is \[3, 2\], but \[2, 3\] .*; copy or export"):
        source.read("a", (2, 3))


@pytest.mark.parametrize(
    "tensor, problem",
    [
        (torch.tensor([1.0, float("nan")]), "infinite or undefined"),
        (torch.tensor([1, 2]), "save the model in float32"),
        (torch.empty(2, device="meta"), "save the model in float32"),
        (torch.ones(2).to_sparse(), "save the model in float32"),
    ],
)
def test_values_that_no_model_has_are_refused(tensor, problem):
    with pytest.raises(UserError, match=problem):
        TensorSource("x", {"a": tensor}).read("a", (2,))


def test_a_file_with_very_many_tensors_is_not_parsed(tmp_path):
    """The library accepts headers of 100 MB, of which a million tensors take gigabytes."""
    header = b"{" + b" " * HEADER_LIMIT + b"}"
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(UserError, match="its header has"):
        open_tensors(tmp_path / "x.safetensors", most_numbers=100)


def test_tensors_without_a_place_are_named():
    source = TensorSource("x", {"mask": torch.zeros(1), "adapter": torch.zeros(1)})
    with pytest.raises(UserError, match="has adapter, .*; use a plain"):
        source.check_all_read(torch.zeros(1), except_for="mask")


def test_damaged_files_are_one_line(tmp_path):
    safetensors.torch.save_file({"a": torch.randn(4, 4)}, tmp_path / "good")
    data, chance = (tmp_path / "good").read_bytes(), random.Random(0)
    for case in range(60):
        damaged = bytearray(data if case % 3 else data[: chance.randrange(120, len(data))])
        for _ in range(1 + case % 5):
            damaged[chance.randrange(120)] = chance.randrange(256)
        (tmp_path / "bad").write_bytes(damaged)
        try:
            open_tensors(tmp_path / "bad", most_numbers=1000).read("a", (4, 4))
        except UserError as error:
            assert "\n" not in str(error)


def test_only_regular_files_of_a_bounded_size_are_opened(tmp_path):
    (tmp_path / "large").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "large")
    check_file(tmp_path / "large", most=5)
    for name, problem in (("large", "can be imported"), ("link", "a link, a folder"), ("absent", "No such file")):
        with pytest.raises(UserError, match=problem):
            check_file(tmp_path / name, most=4)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(UserError, match="a link, a folder"):
            check_file(tmp_path / "pipe", most=4)


def test_the_file_holds_the_model(tmp_path, make_model, each_shape):
    loaded = make_model(**each_shape)
    write(loaded, tmp_path / "x.safetensors", options_of(loaded))
    found, expected = safetensors.torch.load_file(tmp_path / "x.safetensors"), loaded.model.state_dict()
    assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)
    with safetensors.safe_open(tmp_path / "x.safetensors", framework="pt") as file:
        header = file.metadata()
    assert json.loads(header["model"]) == dataclasses.asdict(loaded.model.config)
    assert Tokenizer.from_json(json.loads(header["vocabulary"])) == loaded.tokenizer
