"""`--to safetensors`: the weights alone, in one file, by the names of model.py, with shape and vocabulary in its header."""

import dataclasses
import json
from pathlib import Path

import safetensors
import torch

from chargpt.exchange.export import ExportOptions
from chargpt.exchange.tensor_file import planned, write_tensors
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.terminal import UserError


def write(loaded: LoadedModel, path: Path, options: ExportOptions) -> list[str]:
    """Write the file; see `chargpt/exchange/export.py`."""
    weights = loaded.model.state_dict()
    shape, vocabulary = dataclasses.asdict(loaded.model.config), loaded.tokenizer.to_json()
    metadata = {"format": "pt", "model": json.dumps(shape), "vocabulary": json.dumps(vocabulary)}
    write_tensors(path, [planned(name, tensor) for name, tensor in weights.items()], metadata)
    with safetensors.safe_open(path, framework="pt") as file:
        for name in weights.keys() | file.keys():
            if name not in file.keys() or not torch.equal(file.get_tensor(name), weights[name]):
                raise UserError(f"safetensors: {name} differs in the file; nothing was written")
    return [f"checked     safetensors {safetensors.__version__}: all {len(weights)} tensors, read again, are equal to the bit"]
