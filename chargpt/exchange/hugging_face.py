"""A folder of transformers: `--to hf` writes one that loads offline and without remote code, and `import` reads one.

It holds GPT-2 or Starcoder2 with a vocabulary of characters or bytes.
"""

import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chargpt.config import ModelConfig
from chargpt.errors import UserError
from chargpt.exchange.export import ExportOptions, write_json
from chargpt.exchange.importing import ImportedModel, brief, checked_shape, imported
from chargpt.exchange.layouts import (
    EPSILON,
    GPT2,
    STARCODER2,
    THETA,
    read_weights,
    transformers_config,
    transformers_tensors,
)
from chargpt.exchange.model_card import write_card
from chargpt.exchange.tensor_file import TensorSource, check_file, open_tensors, write_tensors
from chargpt.exchange.tokenizer_json import from_tokenizer_json, to_tokenizer_json
from chargpt.runs.checkpoint_schema import JSON_LIMIT, read_bounded
from chargpt.runs.model_shape import MAX_NUMBERS
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.terminal import shown

USAGE = """```python
from transformers import pipeline

write = pipeline("text-generation", model="FOLDER")  # this folder
print(write("PROMPT", do_sample=True, temperature=0.8)[0]["generated_text"])
```"""


def write(loaded: LoadedModel, path: Path, options: ExportOptions) -> None:
    """Write the folder; see `chargpt/exchange/export.py`."""
    os.mkdir(path)
    write_json(path / "tokenizer.json", to_tokenizer_json(loaded.tokenizer))
    write_json(path / "config.json", transformers_config(loaded.model))
    write_json(path / "generation_config.json", _generation_config(loaded))
    write_json(path / "tokenizer_config.json", _tokenizer_config(loaded))
    write_tensors(path / "model.safetensors", transformers_tensors(loaded.model), {"format": "pt"})
    write_card(path / "README.md", loaded, options, library="transformers", usage=USAGE, notes=_notes(loaded))


def _generation_config(loaded: LoadedModel) -> dict[str, Any]:
    """Greedy unless asked otherwise, up to the end of the context; ids that are never sampled are suppressed."""
    never = {"suppress_tokens": list(loaded.tokenizer.never_sampled)} if loaded.tokenizer.never_sampled else {}
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    return {"_from_model_config": False, "max_length": loaded.model.config.block_size, **ends, **never}


def _tokenizer_config(loaded: LoadedModel) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,  # the default removes spaces before punctuation
        "model_max_length": loaded.model.config.block_size,
    }


def _notes(loaded: LoadedModel) -> list[str]:
    unknown = "become the id of folded characters" if loaded.tokenizer.folded else "vanish without a message"
    notes = [] if loaded.tokenizer.characters is None else [f"Characters that are not in the vocabulary {unknown}."]
    return [*notes, 'A text without a prompt begins after a newline: give the prompt "\\n".']


# The names of masks, which older versions saved.
BUFFERS = r"transformer\.h\.\d+\.attn\.(masked_)?bias"


def read_folder(folder: Path) -> ImportedModel:
    """The model in a folder of transformers. Raises UserError, naming what it is, for anything that cannot be represented."""
    config_path, tokenizer_path = folder / "config.json", folder / "tokenizer.json"
    config, where = read_json(config_path), shown(config_path)
    if not (folder / "model.safetensors").exists():
        raise UserError(f"{shown(folder)}: holds no model.safetensors; save it with save_pretrained(safe_serialization=True)")
    if not tokenizer_path.exists():
        raise UserError(f"{shown(folder)}: holds no tokenizer.json; save its tokenizer as a fast tokenizer")
    tokenizer, ids = from_tokenizer_json(read_json(tokenizer_path))
    kind = config.get("model_type")
    if kind not in ("gpt2", "starcoder2"):
        raise UserError(f"{where}: model_type is {brief(kind)}; gpt2 and starcoder2 can be imported")
    if config.get("vocab_size") != len(ids):
        found = f"vocab_size is {brief(config.get('vocab_size'))}, and tokenizer.json has {len(ids):,} tokens"
        raise UserError(f"{where}: {found}; the two must be equal")
    shape = (_gpt2_shape if kind == "gpt2" else _starcoder2_shape)(config, where, tokenizer.vocab_size)
    source = open_tensors(folder / "model.safetensors", most_numbers=2 * MAX_NUMBERS)
    layout = GPT2 if kind == "gpt2" else STARCODER2
    weights = read_weights(source, layout, shape, tokenizer.vocab_size, is_transposed=kind == "gpt2")
    _check_output(source, weights["token_embedding.weight"])
    source.check_all_read(except_for=BUFFERS)
    return imported(f"transformers ({kind})", shape, tokenizer, weights, ids=ids)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises UserError."""
    check_file(path, most=2 * JSON_LIMIT)
    data = read_bounded(path, limit=2 * JSON_LIMIT)
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{shown(path)}: not valid JSON ({str(error):.100}); export it again") from None
    if not isinstance(document, dict):
        raise UserError(f"{shown(path)}: not a JSON object; export it again")
    return document


def _gpt2_shape(config: dict[str, Any], where: str, vocab_size: int) -> ModelConfig:
    fields = {"block_size": config.get("n_positions", 1024)}
    fields |= {name: config.get(name, default) for name, default in (("n_layer", 12), ("n_head", 12), ("n_embd", 768))}
    shape = checked_shape(where, vocab_size=vocab_size, **fields)
    needed = {  # the default of transformers, and what model.py computes
        "activation_function": ("gelu_new", "gelu"),
        "layer_norm_epsilon": (EPSILON, EPSILON),
        "scale_attn_weights": (True, True),
        "scale_attn_by_inverse_layer_idx": (False, False),
        "add_cross_attention": (False, False),
        "tie_word_embeddings": (True, True),
    }
    found = {name: (config.get(name, default), value) for name, (default, value) in needed.items()}
    _check_equal(where, {**found, "n_inner": (config.get("n_inner") or 4 * shape.n_embd, 4 * shape.n_embd)})
    return shape


def _starcoder2_shape(config: dict[str, Any], where: str, vocab_size: int) -> ModelConfig:
    names = {
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_embd": "hidden_size",
        "block_size": "max_position_embeddings",
    }
    fields = {ours: config.get(theirs) for ours, theirs in names.items()}
    shape = checked_shape(where, vocab_size=vocab_size, positions="rotary", **fields)
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = rope if isinstance(rope, dict) else {"rope_type": rope}
    window, width = config.get("sliding_window"), shape.n_embd // shape.n_head
    expected = {
        "hidden_act": (config.get("hidden_act", "gelu_pytorch_tanh"), "gelu"),
        "norm_epsilon": (config.get("norm_epsilon", EPSILON), EPSILON),
        "tie_word_embeddings": (config.get("tie_word_embeddings", True), True),
        "num_key_value_heads": (config.get("num_key_value_heads", 2), shape.n_head),
        "intermediate_size": (config.get("intermediate_size", 12288), 4 * shape.n_embd),
        "head_dim": (config.get("head_dim") or width, width),
        "rope_type": (rope.get("rope_type", rope.get("type", "default")), "default"),  # `type` in older versions
        "partial_rotary_factor": (rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0)), 1.0),
        "rope_theta": (rope.get("rope_theta", config.get("rope_theta", THETA)), THETA),
        "sliding_window": (None if type(window) is int and window >= shape.block_size else window, None),
    }
    _check_equal(where, expected)
    return shape


def _check_equal(where: str, settings: dict[str, tuple[Any, Any]]) -> None:
    """Raise UserError if one of the `settings` of another program is not what model.py computes with."""
    for name, (found, needed) in settings.items():
        if found != needed:
            raise UserError(f"{where}: {name} is {brief(found)}; only {needed} can be imported")


def _check_output(source: TensorSource, embedding: Tensor) -> None:
    """The output matrix, if it is stored, must be the token embedding."""
    if "lm_head.weight" in source and not torch.equal(source.read("lm_head.weight", embedding.shape), embedding):
        raise UserError("model.safetensors: lm_head.weight is not the token embedding; only tied embeddings can be imported")
