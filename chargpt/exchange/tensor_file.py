"""safetensors files: `--to safetensors`, those of other programs, written a tensor at a time, and read within bounds."""

import dataclasses
import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import safetensors
import torch
from torch import Tensor

from chargpt.errors import UserError
from chargpt.exchange.export import ExportOptions
from chargpt.files import write_pieces_synced
from chargpt.formatting import shown
from chargpt.runs.checkpoint import file_pieces
from chargpt.runs.checkpoint_schema import JSON_LIMIT
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.standard import model_source

# Bytes of a header; a model of 1,000 layers has 1.5 MB. Parsed, it takes up to 20 times its size.
HEADER_LIMIT = 2 << 20
AGAIN = "copy or export the model again"
OUTPUT = "lm_head.weight"  # of GPT-2, Starcoder2 and nanoGPT
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def write(loaded: LoadedModel, path: Path, options: ExportOptions) -> None:
    """Write the weights by the names of model.py, with shape, vocabulary, and step, loss and model.py in the header, as
    `load_kept` reads them; see `export.py`."""
    state = {"step": loaded.step, "val_loss": loaded.val_loss, "model_source": model_source()}
    state["model_loss"] = loaded.model_loss()
    parts = {"model": dataclasses.asdict(loaded.model.config), "vocabulary": loaded.tokenizer.to_json(), "state": state}
    metadata = {"format": "pt", **{name: json.dumps(part) for name, part in parts.items()}}
    write_pieces_synced(path, file_pieces(loaded.model.state_dict(), metadata))


class TensorSource:
    """Tensors of another program's file, which are mapped and not yet in memory."""

    def __init__(self, where: str, tensors: Mapping[str, Tensor]) -> None:
        """`where` begins error messages."""
        self._where, self._tensors = where, tensors
        self._unread = set(tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def read(self, name: str, shape: Sequence[int]) -> Tensor:
        """A tensor as float32. Raises UserError unless it is there, of this shape, of floating point, and finite."""
        if name not in self._tensors:
            raise UserError(f"{self._where}: {name} is missing, so the model is incomplete, or of another kind; {AGAIN}")
        tensor = self._tensors[name].detach()
        if tuple(found := tensor.shape) != tuple(shape):
            raise UserError(f"{self._where}: {name} is {list(found)}, but {list(shape)} in the model's settings; {AGAIN}")
        self._unread.discard(name)
        if tensor.dtype not in FLOATS or tensor.layout != torch.strided or tensor.device.type != "cpu":
            raise UserError(f"{self._where}: {name} is {tensor.dtype}; save the model in float32, float16 or bfloat16")
        tensor = tensor.to(torch.float32)
        if not tensor.isfinite().all():
            raise UserError(f"{self._where}: damaged, {name} has numbers that are infinite or undefined; {AGAIN}")
        return tensor

    def check_all_read(self, embedding: Tensor, *, except_for: str) -> None:
        """Raise UserError, naming one, if a tensor was not read and its name does not match `except_for`.

        The matrix of the output, if it is stored, must be the token embedding.
        """
        if OUTPUT in self and not torch.equal(self.read(OUTPUT, embedding.shape), embedding):
            what = f"{OUTPUT} differs from the token embedding, and only tied models can be imported"
            raise UserError(f'{self._where}: {what}; use a model with "tie_word_embeddings": true in its config.json')
        for name in sorted(self._unread):
            if not re.fullmatch(except_for, name):
                raise UserError(f"{self._where}: has {name:.80}, so it is no plain GPT-2; use a plain GPT-2 or Starcoder2")


def open_tensors(path: Path, *, most_numbers: int) -> TensorSource:
    """The tensors of a safetensors file, which are read when they are used. Raises UserError."""
    check_file(path, most=4 * most_numbers + JSON_LIMIT)
    with open(path, "rb") as opened:
        header = int.from_bytes(opened.read(8), "little")
    if header > HEADER_LIMIT:
        raise UserError(f"{shown(path)}: damaged, its header has {header:,} bytes, more than any model needs; {AGAIN}")
    try:
        file = safetensors.safe_open(path, framework="pt")
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    except Exception as error:  # any kind of invalid data is reported in the same way
        raise UserError(f"{shown(path)}: damaged, not a safetensors file ({str(error):.200}); {AGAIN}") from None
    return TensorSource(shown(path), tensors)


def check_file(path: Path, *, most: int) -> None:
    """Raise UserError unless `path` is a regular file, not a link, of at most `most` bytes."""
    try:
        status = os.lstat(path)
    except OSError as error:
        raise UserError(f"{shown(path)}: {error.strerror}; give the folder of a model that you may read") from None
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{shown(path)}: a link, a folder or a device, not a file; copy the files themselves into one folder")
    if status.st_size > most:
        raise UserError(f"{shown(path)}: {status.st_size:,} bytes, and at most {most:,} can be imported; use a smaller model")
