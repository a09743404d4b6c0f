"""What the tests of exports and imports call: small models with random weights, biases included, and options."""

from pathlib import Path

import numpy as np
import torch
from helpers import random_weights, saved_state

from chargpt.exchange.export import ExportOptions
from chargpt.model import GPTConfig
from chargpt.runs.checkpoint import mark_best, publish
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.text.tokenizer import Tokenizer

VOCABULARIES = {
    "characters": Tokenizer("\n \\abcdefgh中😀"),
    "bytes": Tokenizer(None),
    "folded": Tokenizer("\n abcdefgh", folded=True),
}


def publish_model(folder: Path, *, positions: str = "learned", bias: bool = True, tokenizer: Tokenizer) -> Path:
    """A run with random weights everywhere, at step 500."""
    shape = GPTConfig(n_layer=2, n_head=2, n_embd=16, block_size=24, bias=bias, positions=positions)
    weights = random_weights(500, shape=shape, tokenizer=tokenizer)
    weights = {name: tensor + 0.1 * torch.randn(tensor.shape) for name, tensor in weights.items()}
    folder.mkdir(parents=True)
    texts = ["/secret/poems.txt"]
    mark_best(
        publish(folder, weights=weights, training={}, state=saved_state(500, shape=shape, tokenizer=tokenizer, texts=texts)),
        1.5,
    )
    return folder


def options_of(loaded: LoadedModel, **changes: object) -> ExportOptions:
    """Options with 60 random ids as the text."""
    top = loaded.model.vocab_size - loaded.tokenizer.folded
    if loaded.tokenizer.characters is None:
        top = 128  # so that every text is UTF-8
    ids = np.random.default_rng(0).integers(0, top, 60)
    options = {"name": loaded.run, "texts": ["poems.txt"], "ids": ids, "ids_from": "60 random characters"}
    return ExportOptions(**{**options, **changes})
