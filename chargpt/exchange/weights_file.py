"""`--to safetensors`: the weights alone, in one file, by the names of model.py, with shape and vocabulary in its header."""

import dataclasses
import json
from pathlib import Path

from chargpt.exchange.export import ExportOptions
from chargpt.exchange.tensor_file import write_tensors
from chargpt.sampling.loaded_model import LoadedModel


def write(loaded: LoadedModel, path: Path, options: ExportOptions) -> None:
    """Write the file; see `chargpt/exchange/export.py`."""
    shape, vocabulary = dataclasses.asdict(loaded.model.config), loaded.tokenizer.to_json()
    metadata = {"format": "pt", "model": json.dumps(shape), "vocabulary": json.dumps(vocabulary)}
    write_tensors(path, loaded.model.state_dict(), metadata)
