"""`--to gguf`: a folder with a GGUF file, which llama.cpp and the programs around it run.

The vocabulary has the form of RWKV's: each token is its bytes, escaped as in Python, and the longest one that fits is taken.
llama.cpp computes the GELU by its tanh approximation from a float16 table, so its logits are close but never equal.
"""

import os
from pathlib import Path

import gguf
from torch import Tensor

from chargpt.exchange.export import ExportOptions
from chargpt.exchange.layouts import ARCHITECTURES, EPSILON, OF_LLAMA_CPP, THETA, Layout, architecture, layers, renamed
from chargpt.exchange.model_card import write_card
from chargpt.exchange.tokenizer_json import FOLDED_NAME
from chargpt.model import GPT
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.text.normalization import TextNormalizer
from chargpt.text.tokenizer import Tokenizer

FILE = "model.gguf"
USAGE = """```bash
llama-completion -m model.gguf -p "PROMPT" --temp 0.8 -no-cnv
```"""


def write(loaded: LoadedModel, path: Path, options: ExportOptions) -> None:
    """Write the folder; see `chargpt/exchange/export.py`."""
    os.mkdir(path)
    write_gguf(path / FILE, loaded.model, loaded.tokenizer)
    write_card(path / "README.md", loaded, options, library="gguf", usage=USAGE, notes=_notes(loaded))


def write_gguf(path: Path, model: GPT, tokenizer: Tokenizer) -> None:
    """Write a new GGUF file with float32 weights. The tensors are those of the model, not copies. Raises OSError."""
    config = model.config
    writer = gguf.GGUFWriter(path, architecture(config))
    writer.add_context_length(config.block_size)
    writer.add_embedding_length(config.n_embd)
    writer.add_feed_forward_length(4 * config.n_embd)
    writer.add_block_count(config.n_layer)
    writer.add_head_count(config.n_head)
    writer.add_head_count_kv(config.n_head)
    writer.add_layer_norm_eps(EPSILON)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    if config.positions == "rotary":
        writer.add_rope_dimension_count(config.n_embd // config.n_head)
        writer.add_rope_freq_base(THETA)
    tokens = gguf_tokens(tokenizer)
    writer.add_tokenizer_model("rwkv")
    writer.add_token_list(tokens)
    kinds = [gguf.TokenType.NORMAL] * len(tokens)
    if tokenizer.folded:
        kinds[-1] = gguf.TokenType.UNKNOWN
        writer.add_unk_token_id(len(tokens) - 1)
    writer.add_token_types(kinds)
    for name, tensor in gguf_tensors(model).items():
        writer.add_tensor(name, tensor.detach().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def gguf_tokens(tokenizer: Tokenizer) -> list[str]:
    """The tokens as RWKV's vocabularies write them: bytes that are not printable ASCII as \\\\x and two digits."""
    if tokenizer.characters is None:
        contents = [bytes([value]) for value in range(256)]
    else:
        contents = [character.encode() for character in tokenizer.characters]
    tokens = ["".join(chr(b) if 0x20 <= b < 0x7F and b != 0x5C else f"\\x{b:02x}" for b in content) for content in contents]
    return [*tokens, *[FOLDED_NAME] * tokenizer.folded]


def gguf_tensors(model: GPT) -> dict[str, Tensor]:
    """The weights by the names of GGUF, with zeros for missing biases."""
    names = layers(OF_LLAMA_CPP, ARCHITECTURES[architecture(model.config)])
    return renamed(model, Layout("token_embd", "position_embd", "blk", "output_norm", names))


def _notes(loaded: LoadedModel) -> list[str]:
    notes = ["llama.cpp computes GELU by the tanh approximation, so probabilities differ a little from those of the run."]
    if loaded.tokenizer.normalizer != TextNormalizer():
        changed = "It does not change the text as the run does (see Vocabulary): give it prompts that are changed already."
        notes.append(changed)
    if loaded.tokenizer.folded:
        notes.append("Each byte of a character that is not in the vocabulary becomes the id of folded characters.")
    return notes
