"""`--to gguf`: a folder with a GGUF file, which llama.cpp and the programs around it run.

The vocabulary has the form of RWKV's: each token is its bytes, escaped as in Python, and the longest one that fits is taken.
llama.cpp computes the GELU by its tanh approximation from a float16 table, so its logits are close but never equal.
"""

import dataclasses
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from torch import Tensor

from chargpt.exchange.certificate import certify
from chargpt.exchange.export import ExportOptions, installed, not_checked, version_of
from chargpt.exchange.layouts import EPSILON, THETA, architecture, bias_or_zeros, layers, layers_split, renamed
from chargpt.exchange.model_card import write_card
from chargpt.exchange.tensor_file import PlannedTensor, planned
from chargpt.exchange.tokenizer_json import FOLDED_NAME
from chargpt.model import GPT
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.terminal import UserError
from chargpt.text.normalization import TextNormalizer
from chargpt.text.tokenizer import Tokenizer

FILE = "model.gguf"
# Ids, and probabilities, that are compared in llama.cpp. It takes a call for each id and lists the whole vocabulary.
LLAMA_IDS = 512
LLAMA_NUMBERS = 200_000
# The bound as a share of the largest logit: what the approximated GELU may change.
TOLERANCE = 1e-3
# Our name of each layer of a block, and the name in GGUF.
NAMES = {
    "norm_1": "attn_norm",
    "attn.qkv": "attn_qkv",
    "attn.q": "attn_q",
    "attn.k": "attn_k",
    "attn.v": "attn_v",
    "attn.proj": "attn_output",
    "norm_2": "ffn_norm",
    "mlp.up": "ffn_up",
    "mlp.down": "ffn_down",
}
USAGE = """```bash
llama-completion -m model.gguf -p "PROMPT" --temp 0.8 -no-cnv
```"""


def write(loaded: LoadedModel, path: Path, options: ExportOptions) -> list[str]:
    """Write the folder; see `chargpt/exchange/export.py`."""
    os.mkdir(path)
    write_gguf(path / FILE, loaded.model, loaded.tokenizer)
    checks = [_check_file(loaded, path / FILE), _check(loaded, path / FILE, options)]
    write_card(path / "README.md", loaded, options, library="gguf", usage=USAGE, notes=_notes(loaded), checks=checks)
    return [f"checked     {checked}" for checked in checks]


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
    for plan in gguf_tensors(model):
        writer.add_tensor(plan.name, plan.make().detach().numpy())
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


def gguf_tensors(model: GPT) -> list[PlannedTensor]:
    """The weights by the names of GGUF, with zeros for missing biases."""
    plans = [planned("token_embd.weight", model.token_embedding.weight)]
    named: Iterable[tuple[str, Tensor, Tensor | None]] = layers_split(model)
    if architecture(model.config) == "gpt2":
        plans.append(planned("position_embd.weight", model.position_table(model.config.block_size)))
        named = layers(model)
    for name, weight, bias in named:
        theirs = "output_norm" if name == "norm" else renamed(name, "blk", NAMES)
        plans += [planned(f"{theirs}.weight", weight), bias_or_zeros(f"{theirs}.bias", weight, bias)]
    return plans


def _notes(loaded: LoadedModel) -> list[str]:
    notes = ["llama.cpp computes GELU by the tanh approximation, so probabilities differ a little from those of the run."]
    if loaded.tokenizer.normalizer != TextNormalizer():
        changed = "It does not change the text as the run does (see Vocabulary): give it prompts that are changed already."
        notes.append(changed)
    if loaded.tokenizer.folded:
        notes.append("Each byte of a character that is not in the vocabulary becomes the id of folded characters.")
    return notes


def _check_file(loaded: LoadedModel, path: Path) -> str:
    """Read the file again and compare every tensor; the result as a sentence. Raises UserError if one differs."""
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    plans = gguf_tensors(loaded.model)
    if len(found) != len(plans):
        raise UserError(f"gguf: {len(found)} tensors in the file, not {len(plans)}; nothing was written")
    for plan in plans:
        data = found[plan.name].data
        if data.dtype != np.float32 or not np.array_equal(data.reshape(plan.shape), plan.make().detach().numpy()):
            raise UserError(f"gguf: {plan.name} differs in the file; nothing was written")
    return f"gguf {version_of('gguf')}: all {len(plans)} tensors, read again, are equal to the bit."


def _check(loaded: LoadedModel, path: Path, options: ExportOptions) -> str:
    """Run the file with llama.cpp and compare; the result as a sentence. Raises UserError if they differ."""
    if not installed("xllamacpp"):
        return not_checked("llama.cpp (package xllamacpp)")
    if loaded.model.config.block_size == 1:  # it ends the process
        return "Not checked with llama.cpp, which does not run a context of one character."
    block_size, vocab_size = loaded.model.config.block_size, loaded.model.vocab_size
    llama = LlamaCpp(path, vocab_size=vocab_size, context=block_size)
    expected = [loaded.tokenizer.decode([i]).encode() for i in range(vocab_size)]
    if loaded.tokenizer.characters is None:
        expected = [bytes([i]) for i in range(vocab_size)]
    known = vocab_size - loaded.tokenizer.folded
    ids = options.ids[: min(LLAMA_IDS, max(32, LLAMA_NUMBERS // vocab_size))]
    start = ids[: block_size // 2]
    text = loaded.tokenizer.decode(start[start < known])
    if llama.token_bytes()[:known] != expected[:known] or llama.prompt_length(text) != len(loaded.tokenizer.ids_of(text)):
        raise UserError("llama.cpp: its tokenizer gives other ids; nothing was written")
    certificate = certify(
        loaded,
        llama.log_probabilities,
        dataclasses.replace(
            options,
            ids=ids,
            ids_from=options.ids_from if len(ids) == len(options.ids) else f"{len(ids):,} of {options.ids_from}",
        ),
        target=f"llama.cpp (xllamacpp {version_of('xllamacpp')})",
        tolerance=TOLERANCE,
        longest=max(1, block_size - 1),  # it keeps room for one more character
        log_probabilities=True,
        last_of=llama.last_log_probabilities,
    )
    return f"{certificate.describe()}. Its tokenizer gives the same ids."


class LlamaCpp:
    """A GGUF file, loaded by llama.cpp (the package xllamacpp) on the CPU, with keys and values in float32."""

    def __init__(self, path: Path, *, vocab_size: int, context: int) -> None:
        """`context` is the longest text. Raises RuntimeError if llama.cpp cannot load the file."""
        import xllamacpp  # only checking an export needs it

        settings = xllamacpp.CommonParams()
        settings.model.path = str(path)
        settings.n_ctx, settings.n_parallel, settings.n_gpu_layers = context, 1, 0
        settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        settings.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        settings.warmup, settings.verbosity = False, -1
        settings.api_keys = [secrets.token_hex()]  # it opens a local port, which nobody is to use
        self._server, self._vocab_size = xllamacpp.Server(settings), vocab_size

    def log_probabilities(self, ids: np.ndarray) -> np.ndarray:
        """The logarithms of probabilities (B, T, V) after each of ids (B, T), with T less than the context."""
        return np.stack([np.stack([self.last_log_probabilities(row[: end + 1]) for end in range(len(row))]) for row in ids])

    def last_log_probabilities(self, ids: np.ndarray) -> np.ndarray:
        """The logarithms of probabilities (V,) after the last of ids (T,), with T less than the context."""
        entries = self._probabilities(ids.tolist())
        return np.array([entries[i]["logprob"] for i in range(self._vocab_size)], np.float32)

    def prompt_length(self, text: str) -> int:
        """The number of ids of a text."""
        return self._complete(text, 1)["usage"]["prompt_tokens"]

    def token_bytes(self) -> list[bytes]:
        """The bytes of each id."""
        entries = self._probabilities([0])
        return [bytes(entries[i]["bytes"]) for i in range(self._vocab_size)]

    def write(self, prompt: str, length: int) -> str:
        """The most likely `length` ids after a text, or fewer if llama.cpp ends it."""
        return self._complete(prompt, length)["choices"][0]["text"]

    def _probabilities(self, ids: list[int]) -> dict[int, dict[str, Any]]:
        """Everything about each id after `ids`."""
        # Probabilities are those before sampling. An id that ends within a character would be answered without them.
        whole = {"logit_bias": [[ord("a") if self._vocab_size == 256 else 0, 1000]]}
        answer = self._complete(ids, 1, n_probs=self._vocab_size, **whole)
        return {entry["id"]: entry for entry in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]}

    def _complete(self, prompt: str | list[int], length: int, **others: Any) -> dict[str, Any]:
        return self._server.handle_completions({"prompt": prompt, "n_predict": length, "temperature": 0, **others})
