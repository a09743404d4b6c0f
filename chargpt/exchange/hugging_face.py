"""A folder of transformers: `--to hf` writes one that loads offline and without remote code, and `import` reads one.

It holds GPT-2 or Starcoder2 with a vocabulary of characters or bytes.
"""

import json
import os
from pathlib import Path
from typing import Any

from chargpt.config import ModelConfig
from chargpt.errors import UserError
from chargpt.exchange.export import ExportOptions
from chargpt.exchange.importing import ImportedModel, brief, checked_shape, imported
from chargpt.exchange.layouts import EPSILON, LAYOUTS, THETA, architecture, read_weights, renamed
from chargpt.exchange.model_card import write_card
from chargpt.exchange.tensor_file import check_file, open_tensors
from chargpt.exchange.tokenizer_json import from_tokenizer_json, to_tokenizer_json
from chargpt.files import write_pieces_synced, write_synced
from chargpt.formatting import shown
from chargpt.model import GPT, GPTConfig
from chargpt.project import shell_word
from chargpt.runs.checkpoint import file_pieces
from chargpt.runs.checkpoint_schema import JSON_LIMIT, MAX_NUMBERS, read_bounded
from chargpt.sampling.loaded_model import LoadedModel

USAGE = """```python
from transformers import pipeline

write = pipeline("text-generation", model="FOLDER")  # this folder
print(write("PROMPT", do_sample=True, temperature=0.8)[0]["generated_text"])
```"""

ENDS = ("bos_token_id", "eos_token_id", "pad_token_id")  # there are none
SHAPE = ("n_layer", "n_head", "n_embd", "block_size")
# What transformers calls a model of each type, its SHAPE, and its dropouts.
TYPES = {
    "gpt2": ("GPT2LMHeadModel", "n_layer n_head n_embd n_positions", "attn_pdrop embd_pdrop resid_pdrop"),
    "starcoder2": (
        "Starcoder2ForCausalLM",
        "num_hidden_layers num_attention_heads hidden_size max_position_embeddings",
        "attention_dropout embedding_dropout residual_dropout",
    ),
}


def write(loaded: LoadedModel, path: Path, options: ExportOptions) -> None:
    """Write the folder; see `chargpt/exchange/export.py`."""
    os.mkdir(path)
    ends, context = dict.fromkeys(ENDS), loaded.model.config.block_size
    size = {"model_max_length": context}
    never = {"suppress_tokens": list(loaded.tokenizer.never_sampled)} if loaded.tokenizer.never_sampled else {}
    documents = {
        "tokenizer.json": to_tokenizer_json(loaded.tokenizer),
        "config.json": transformers_config(loaded.model),
        # Greedy unless asked otherwise, up to the end of the context; ids that are never sampled are suppressed.
        "generation_config.json": {"_from_model_config": False, "max_length": context, **ends, **never},
        # By default, spaces before punctuation are removed.
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **size},
    }
    for name, document in documents.items():
        write_synced(path / name, (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode())
    tensors = renamed(loaded.model, LAYOUTS[architecture(loaded.model.config)])
    write_pieces_synced(path / "model.safetensors", file_pieces(tensors, {"format": "pt"}))
    write_card(path / "README.md", loaded, options, library="transformers", usage=USAGE, notes=_notes(loaded))


def computed_settings(kind: str, shape: ModelConfig | GPTConfig) -> dict[str, tuple[Any, Any]]:
    """What model.py computes, in the settings of transformers for an architecture: the default there, and our value."""
    if kind == "gpt2":
        return {
            "activation_function": ("gelu_new", "gelu"),  # the exact one; the default is the tanh approximation
            "layer_norm_epsilon": (EPSILON, EPSILON),
            "n_inner": (4 * shape.n_embd, 4 * shape.n_embd),
            "scale_attn_weights": (True, True),
            "scale_attn_by_inverse_layer_idx": (False, False),
            "add_cross_attention": (False, False),
            "tie_word_embeddings": (True, True),
        }
    width = shape.n_embd // shape.n_head
    return {
        "hidden_act": ("gelu_pytorch_tanh", "gelu"),
        "norm_epsilon": (EPSILON, EPSILON),
        "intermediate_size": (12288, 4 * shape.n_embd),
        "num_key_value_heads": (2, shape.n_head),
        "head_dim": (width, width),
        "sliding_window": (None, None),
        "rope_theta": (THETA, THETA),
        "tie_word_embeddings": (True, True),
    }


def transformers_config(model: GPT) -> dict[str, Any]:
    """The content of config.json."""
    config, kind = model.config, architecture(model.config)
    name, shape, dropouts = TYPES[kind]
    own: dict[str, Any] = {"n_ctx": config.block_size}  # for llama.cpp's converter
    if kind == "starcoder2":
        own = {"use_bias": config.bias, "rope_parameters": {"rope_type": "default", "rope_theta": THETA}}
    return {
        "architectures": [name],
        "model_type": kind,
        "torch_dtype": "float32",
        "vocab_size": model.vocab_size,
        **{theirs: getattr(config, ours) for ours, theirs in zip(SHAPE, shape.split())},
        **{name: value for name, (_, value) in computed_settings(kind, config).items()},
        **own,
        **dict.fromkeys(dropouts.split(), 0.0),
        "use_cache": True,
        **dict.fromkeys(ENDS),
    }


def _notes(loaded: LoadedModel) -> list[str]:
    unknown = "become the id of folded characters" if loaded.tokenizer.folded else "vanish without a message"
    notes = [] if loaded.tokenizer.characters is None else [f"Characters that are not in the vocabulary {unknown}."]
    return [*notes, 'A text without a prompt begins after a newline: give the prompt "\\n".']


# Settings of rotary positions, in an object of their own there: the default, and what model.py computes.
ROPE = {"rope_type": ("default", "default"), "partial_rotary_factor": (1.0, 1.0)}
# The names of masks, which older versions saved.
BUFFERS = r"transformer\.h\.\d+\.attn\.(masked_)?bias"


def read_folder(folder: Path) -> ImportedModel:
    """The model in a folder of transformers. Raises UserError, naming what it is, for anything that cannot be represented."""
    config_path, tokenizer_path = folder / "config.json", folder / "tokenizer.json"
    config, where = read_json(config_path), shown(config_path)
    for path, loads in ((folder / "model.safetensors", "AutoModelForCausalLM"), (tokenizer_path, "AutoTokenizer")):
        if not path.exists():
            make = f"import sys, transformers as t; t.{loads}.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[1])"
            make = f'python -c "{make}" {shell_word(shown(folder))}'
            raise UserError(f"{shown(folder)}: has no {path.name}; make it with: {make}")
    tokenizer, ids = from_tokenizer_json(read_json(tokenizer_path))
    kind = config.get("model_type")
    if kind not in (*TYPES,):
        raise UserError(f"{where}: model_type is {brief(kind)}; use a model of type gpt2 or starcoder2")
    if config.get("vocab_size") != len(ids):
        found = f"vocab_size is {brief(config.get('vocab_size'))}, and tokenizer.json has {len(ids):,} tokens"
        raise UserError(f"{where}: {found}, so they are of two models; copy both files from one")
    shape = _shape(config, where, tokenizer.vocab_size)
    source = open_tensors(folder / "model.safetensors", most_numbers=2 * MAX_NUMBERS)
    weights = read_weights(source, LAYOUTS[kind], shape, tokenizer.vocab_size)
    source.check_all_read(weights["token_embedding.weight"], except_for=BUFFERS)
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


def _shape(config: dict[str, Any], where: str, vocab_size: int) -> ModelConfig:
    """The shape of a model that computes as model.py does. Raises UserError for any other."""
    kind = config["model_type"]
    fields = {ours: config.get(theirs) for ours, theirs in zip(SHAPE, TYPES[kind][1].split())}
    positions = "learned" if kind == "gpt2" else "rotary"
    shape = checked_shape(where, vocab_size=vocab_size, positions=positions, **fields)
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = rope if isinstance(rope, dict) else {"rope_type": rope}
    found = {**config, "rope_type": rope.get("type"), **rope}  # `type` in older versions
    if type(window := found.get("sliding_window")) is int and window >= shape.block_size:
        found["sliding_window"] = None
    for name, (default, needed) in {**computed_settings(kind, shape), **ROPE}.items():
        value = default if found.get(name) is None else found[name]
        if value != needed:
            raise UserError(f"{where}: {name} is {brief(value)}, and only {needed} can be imported; use another model")
    return shape
