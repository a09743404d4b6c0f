"""`--to safetensors`: the weights to the bit, with shape and vocabulary in the header."""

import dataclasses
import json

import safetensors.torch
import torch

from chargpt.exchange.weights_file import write
from chargpt.text.tokenizer import Tokenizer


def test_the_file_holds_the_model(tmp_path, make_model, make_options, each_shape):
    loaded = make_model(**each_shape)
    write(loaded, tmp_path / "x.safetensors", make_options(loaded))
    found, expected = safetensors.torch.load_file(tmp_path / "x.safetensors"), loaded.model.state_dict()
    assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)
    with safetensors.safe_open(tmp_path / "x.safetensors", framework="pt") as file:
        header = file.metadata()
    assert json.loads(header["model"]) == dataclasses.asdict(loaded.model.config)
    assert Tokenizer.from_json(json.loads(header["vocabulary"])) == loaded.tokenizer
