"""The same weights under other names: GPT-2 for positions that are added, Starcoder2 for rotary ones.

transformers computes the standard model so: GPT-2 with the exact GELU, Starcoder2 with as many key heads as query heads.
Both have biases everywhere; a model without biases gets zeros, which changes no logit.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from chargpt.config import ModelConfig
from chargpt.exchange.tensor_file import TensorSource
from chargpt.model import GPT, GPTConfig
from chargpt.standard_model import standard_shapes

EPSILON = 1e-5  # of every LayerNorm
THETA = 10000.0  # the base of rotary frequencies


class Layout(NamedTuple):
    """What another program calls the weights."""

    token_embedding: str
    position_embedding: str
    blocks: str
    norm: str  # after the last block
    layers: Mapping[str, str]  # our name of each layer of a block, and theirs; with attn.q, queries, keys and values are apart
    is_transposed: bool = False  # linear layers hold the transpose
    are_biases_filled: bool = True  # each of them has a bias, zeros if need be; norms have them always

    def name(self, ours: str) -> str:
        """Their name of a weight or a bias, such as transformer.h.0.ln_1.bias for blocks.0.norm_1.bias."""
        layer, _, kind = ours.rpartition(".")
        if layer.startswith("blocks."):
            _, number, layer = layer.split(".", 2)
            return f"{self.blocks}.{number}.{self.layers[layer]}.{kind}"
        return f"{getattr(self, layer)}.{kind}"

    def parts(self, ours: str) -> list[str]:
        """The parts of a weight or a bias that they hold apart."""
        is_split = ".qkv." in ours and "attn.q" in self.layers
        return [ours.replace(".qkv.", f".{letter}.") for letter in "qkv"] if is_split else [ours]


LAYERS = {  # our name of each layer of a block, and what GPT-2, Starcoder2 and llama.cpp call it; nanoGPT does as GPT-2
    "norm_1": ("ln_1", "input_layernorm", "attn_norm"),
    "attn.qkv": ("attn.c_attn", "", "attn_qkv"),
    "attn.q": ("", "self_attn.q_proj", "attn_q"),
    "attn.k": ("", "self_attn.k_proj", "attn_k"),
    "attn.v": ("", "self_attn.v_proj", "attn_v"),
    "attn.proj": ("attn.c_proj", "self_attn.o_proj", "attn_output"),
    "norm_2": ("ln_2", "post_attention_layernorm", "ffn_norm"),
    "mlp.up": ("mlp.c_fc", "mlp.c_fc", "ffn_up"),
    "mlp.down": ("mlp.c_proj", "mlp.c_proj", "ffn_down"),
}
OF_GPT2, OF_STARCODER2, OF_LLAMA_CPP = range(3)  # columns


def layers(names: int, architecture: int) -> dict[str, str]:
    """The `names` that a program gives the layers of an architecture, by ours: two columns of LAYERS."""
    return {ours: theirs[names] for ours, theirs in LAYERS.items() if theirs[architecture]}


NANOGPT = Layout("transformer.wte", "transformer.wpe", "transformer.h", "transformer.ln_f", layers(OF_GPT2, OF_GPT2))
STARCODER2 = Layout("model.embed_tokens", "", "model.layers", "model.norm", layers(OF_STARCODER2, OF_STARCODER2))
# Of transformers, by architecture.
LAYOUTS = {"gpt2": NANOGPT._replace(is_transposed=True), "starcoder2": STARCODER2._replace(are_biases_filled=False)}
ARCHITECTURES = {"gpt2": OF_GPT2, "starcoder2": OF_STARCODER2}


def architecture(config: GPTConfig) -> str:
    """The architecture, as transformers and llama.cpp name it, that computes a model of this shape."""
    return "starcoder2" if config.positions == "rotary" else "gpt2"


def renamed(model: GPT, layout: Layout) -> dict[str, Tensor]:
    """The weights by the names of `layout`; those of the model itself, not copies."""
    tensors = {layout.name("token_embedding.weight"): model.token_embedding.weight}
    if architecture(model.config) == "gpt2":
        tensors[layout.name("position_embedding.weight")] = model.position_table(model.config.block_size)
    for name, module in model.named_modules():
        if isinstance(module, (nn.Linear, nn.LayerNorm)):
            weight, bias = module.weight, module.bias
            if bias is None and (layout.are_biases_filled or weight.dim() == 1):
                bias = torch.zeros(weight.size(0))
            for ours, tensor in ((f"{name}.weight", weight), (f"{name}.bias", bias)):
                if tensor is not None:
                    parts = layout.parts(ours)
                    for part, one in zip(parts, tensor.chunk(len(parts))):
                        tensors[layout.name(part)] = one.t() if layout.is_transposed else one  # of a vector: itself
    return tensors


def read_weights(source: TensorSource, layout: Layout, shape: ModelConfig, vocab_size: int) -> dict[str, Tensor]:
    """The weights of a GPT, with the biases that `source` has. Raises UserError."""
    weights: dict[str, Tensor] = {}
    for name, size in standard_shapes(replace(shape, bias=True), vocab_size).items():
        parts = layout.parts(name)
        size = (size[0] // len(parts), *size[1:])
        turned = layout.is_transposed and len(size) == 2 and "embedding" not in name
        present = [name.endswith(".weight") or layout.name(part) in source for part in parts]
        if any(present):
            read = [
                source.read(layout.name(part), size[::-1] if turned else size) if is_there else torch.zeros(size)
                for part, is_there in zip(parts, present)
            ]
            tensor = read[0] if len(read) == 1 else torch.cat(read)
            weights[name] = tensor.t().contiguous() if turned else tensor
    return weights


def with_biases(weights: dict[str, Tensor]) -> tuple[dict[str, Tensor], bool]:
    """`weights` with a bias in every layer, or in none if every bias is zero; and whether there are any."""
    biases = {name for name in weights if name.endswith(".bias")}
    if not any(weights[name].any() for name in biases):
        return {name: tensor for name, tensor in weights.items() if name not in biases}, False
    named = [name.removesuffix(".weight") for name in weights if name.endswith(".weight") and "embedding" not in name]
    missing = {f"{layer}.bias": torch.zeros(weights[f"{layer}.weight"].size(0)) for layer in named}
    return {**missing, **weights}, True
