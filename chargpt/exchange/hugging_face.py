"""`--to hf`: a folder that transformers loads offline and without remote code."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from chargpt.exchange.certificate import certify
from chargpt.exchange.extras import installed, not_checked, version_of
from chargpt.exchange.layouts import transformers_config, transformers_tensors
from chargpt.exchange.model_card import write_card
from chargpt.exchange.target import ExportOptions
from chargpt.exchange.tensor_file import write_tensors
from chargpt.exchange.tokenizer_json import to_tokenizer_json
from chargpt.files import write_synced
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.terminal import UserError

USAGE = """```python
from transformers import pipeline

write = pipeline("text-generation", model="FOLDER")  # this folder
print(write("PROMPT", do_sample=True, temperature=0.8)[0]["generated_text"])
```"""


def write(loaded: LoadedModel, path: Path, options: ExportOptions) -> list[str]:
    """Write the folder; see `chargpt/exchange/target.py`."""
    os.mkdir(path)
    write_json(path / "tokenizer.json", to_tokenizer_json(loaded.tokenizer))
    write_json(path / "config.json", transformers_config(loaded.model))
    write_json(path / "generation_config.json", _generation_config(loaded))
    write_json(path / "tokenizer_config.json", _tokenizer_config(loaded))
    write_tensors(path / "model.safetensors", transformers_tensors(loaded.model), {"format": "pt"})
    checked = _check(loaded, path, options)
    write_card(path / "README.md", loaded, options, library="transformers", usage=USAGE, notes=_notes(loaded), checks=[checked])
    return [f"checked     {checked}"]


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a new JSON file. Raises OSError."""
    write_synced(path, (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode())


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


def _check(loaded: LoadedModel, path: Path, options: ExportOptions) -> str:
    """Load the folder with transformers and compare; the result as a sentence. Raises UserError if they differ."""
    if not installed("transformers"):
        return not_checked("transformers")
    # These take seconds.
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    text = loaded.tokenizer.decode(options.ids)
    if tokenizer(text, verbose=False)["input_ids"] != loaded.tokenizer.encode(text).tolist():
        raise UserError("transformers: its tokenizer gives other ids; nothing was written")
    model = AutoModelForCausalLM.from_pretrained(path, local_files_only=True, dtype=torch.float32).eval()

    def logits_of(ids: np.ndarray) -> np.ndarray:
        return model(input_ids=torch.from_numpy(ids), use_cache=False).logits.numpy()

    target = f"transformers {version_of('transformers')} ({type(model).__name__})"
    certificate = certify(loaded, logits_of, options, target=target)
    return f"{certificate.describe()}. AutoTokenizer gives the same ids."
