"""`--to safetensors`: the weights to the bit, with shape and vocabulary in the header."""

import dataclasses
import json

import pytest
import safetensors.torch
import torch

from chargpt.exchange import weights_file
from chargpt.exchange.weights_file import write
from chargpt.terminal import UserError
from chargpt.text.tokenizer import Tokenizer


def test_the_file_holds_the_model(tmp_path, make_model, make_options, each_shape):
    loaded = make_model(**each_shape)
    (line,) = write(loaded, tmp_path / "x.safetensors", make_options(loaded))
    found, expected = safetensors.torch.load_file(tmp_path / "x.safetensors"), loaded.model.state_dict()
    assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)
    with safetensors.safe_open(tmp_path / "x.safetensors", framework="pt") as file:
        header = file.metadata()
    assert json.loads(header["model"]) == dataclasses.asdict(loaded.model.config) and "equal to the bit" in line
    assert Tokenizer.from_json(json.loads(header["vocabulary"])) == loaded.tokenizer


def test_a_file_that_differs_is_an_error(tmp_path, make_model, make_options, monkeypatch):
    loaded = make_model()

    def write_other(path, plans, metadata):
        safetensors.torch.save_file({plan.name: plan.make() + 1e-6 for plan in plans}, path)

    monkeypatch.setattr(weights_file, "write_tensors", write_other)
    with pytest.raises(UserError, match="differs in the file"):
        write(loaded, tmp_path / "x.safetensors", make_options(loaded))
