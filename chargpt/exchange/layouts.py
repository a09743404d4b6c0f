"""The same weights under other names: GPT-2 for learned and sinusoidal positions, Starcoder2 for rotary ones.

transformers computes both as model.py does: GPT-2 with the exact GELU, Starcoder2 with as many key heads as query heads.
Both have biases everywhere; a model without biases gets zeros, which changes no logit.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from chargpt.config import ModelConfig
from chargpt.exchange.tensor_file import TensorSource
from chargpt.model import GPT, GPTConfig

# The epsilon of every LayerNorm.
EPSILON = 1e-5
# The base of rotary frequencies.
THETA = 10000.0
# Our name of each layer of a block, and the names in GPT-2 (nanoGPT has the same) and in Starcoder2.
GPT2 = {
    "norm_1": "ln_1",
    "attn.qkv": "attn.c_attn",
    "attn.proj": "attn.c_proj",
    "norm_2": "ln_2",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
}
STARCODER2 = {
    "norm_1": "input_layernorm",
    "attn.q": "self_attn.q_proj",
    "attn.k": "self_attn.k_proj",
    "attn.v": "self_attn.v_proj",
    "attn.proj": "self_attn.o_proj",
    "norm_2": "post_attention_layernorm",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
}

# The architecture that computes each kind of positions.
ARCHITECTURES = {"learned": "gpt2", "sinusoidal": "gpt2", "rotary": "starcoder2"}


def architecture(config: GPTConfig) -> str:
    """The architecture, as transformers and llama.cpp name it, that computes a model of this shape."""
    return ARCHITECTURES[config.positions]


def transformers_config(model: GPT) -> dict[str, Any]:
    """The content of config.json."""
    config = model.config
    common = {
        "torch_dtype": "float32",
        "vocab_size": model.vocab_size,
        "tie_word_embeddings": True,
        "use_cache": True,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    if architecture(config) == "gpt2":
        return {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "activation_function": "gelu",  # the exact one; the default is the tanh approximation
            "n_layer": config.n_layer,
            "n_head": config.n_head,
            "n_embd": config.n_embd,
            "n_positions": config.block_size,
            "n_ctx": config.block_size,  # llama.cpp's converter needs it
            "n_inner": 4 * config.n_embd,
            "layer_norm_epsilon": EPSILON,
            **{f"{part}_pdrop": 0.0 for part in ("attn", "embd", "resid")},
            **common,
        }
    return {
        "architectures": ["Starcoder2ForCausalLM"],
        "model_type": "starcoder2",
        "hidden_act": "gelu",
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "num_key_value_heads": config.n_head,
        "head_dim": config.n_embd // config.n_head,
        "hidden_size": config.n_embd,
        "intermediate_size": 4 * config.n_embd,
        "max_position_embeddings": config.block_size,
        "norm_epsilon": EPSILON,
        "use_bias": config.bias,
        "sliding_window": None,
        "rope_theta": THETA,
        "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
        **{f"{part}_dropout": 0.0 for part in ("attention", "embedding", "residual")},
        **common,
    }


def layers(model: GPT) -> Iterable[tuple[str, Tensor, Tensor | None]]:
    """Name, weight and bias of every layer of the blocks, as `blocks.0.attn.qkv`, and of the last norm, as `norm`."""
    for name, module in model.named_modules():
        if isinstance(module, (nn.Linear, nn.LayerNorm)):
            yield name, module.weight, module.bias


def layers_split(model: GPT) -> Iterable[tuple[str, Tensor, Tensor | None]]:
    """`layers` with queries, keys and values on their own: attn.q, attn.k and attn.v for attn.qkv."""
    for name, weight, bias in layers(model):
        if not name.endswith("attn.qkv"):
            yield name, weight, bias
            continue
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        for letter, one, its_bias in zip("qkv", weight.chunk(3), biases):
            yield name.removesuffix("qkv") + letter, one, its_bias


def transformers_tensors(model: GPT) -> dict[str, Tensor]:
    """The weights as transformers stores them for `transformers_config`; those of the model itself, not copies."""
    if architecture(model.config) == "gpt2":
        tensors = {
            "transformer.wte.weight": model.token_embedding.weight,
            "transformer.wpe.weight": model.position_table(model.config.block_size),
        }
        for name, weight, bias in layers(model):
            theirs = "transformer.ln_f" if name == "norm" else renamed(name, "transformer.h", GPT2)
            tensors[f"{theirs}.weight"] = weight.t()  # GPT-2's linear layers hold the transpose
            tensors[f"{theirs}.bias"] = bias_or_zeros(weight, bias)
        return tensors
    tensors = {"model.embed_tokens.weight": model.token_embedding.weight}
    for name, weight, bias in layers_split(model):
        theirs = "model.norm" if name == "norm" else renamed(name, "model.layers", STARCODER2)
        tensors[f"{theirs}.weight"] = weight
        if weight.dim() == 1 or bias is not None:
            tensors[f"{theirs}.bias"] = bias_or_zeros(weight, bias)
    return tensors


def bias_or_zeros(weight: Tensor, bias: Tensor | None) -> Tensor:
    """The bias of a layer whose weight is `weight` (outputs first)."""
    return torch.zeros(weight.size(0)) if bias is None else bias


def renamed(name: str, blocks: str, names: Mapping[str, str]) -> str:
    """`blocks.0.norm_1` as it is called elsewhere, for example transformer.h.0.ln_1."""
    _, number, layer = name.split(".", 2)
    return f"{blocks}.{number}.{names[layer]}"


def weights_from_gpt2(source: TensorSource, shape: ModelConfig, vocab_size: int, *, is_transposed: bool) -> dict[str, Tensor]:
    """The weights of a GPT with learned positions, from tensors with GPT-2's names; biases as `with_biases` expects them.

    `is_transposed`: whether linear layers hold the transpose, as in transformers; in nanoGPT they do not. Raises UserError.
    """
    C, prefix = shape.n_embd, "transformer."
    weights = {
        "token_embedding.weight": source.read(f"{prefix}wte.weight", (vocab_size, C)),
        "position_embedding.weight": source.read(f"{prefix}wpe.weight", (shape.block_size, C)),
    }
    for name, rows, columns in _expected(shape, GPT2):
        theirs = f"{prefix}ln_f" if name == "norm" else renamed(name, f"{prefix}h", GPT2)
        _read_layer(source, weights, name, theirs, rows, columns, is_transposed=is_transposed)
    return weights


def weights_from_starcoder2(source: TensorSource, shape: ModelConfig, vocab_size: int) -> dict[str, Tensor]:
    """The weights of a GPT with rotary positions; see `weights_from_gpt2`."""
    weights = {"token_embedding.weight": source.read("model.embed_tokens.weight", (vocab_size, shape.n_embd))}
    for name, rows, columns in _expected(shape, STARCODER2):
        theirs = "model.norm" if name == "norm" else renamed(name, "model.layers", STARCODER2)
        _read_layer(source, weights, name, theirs, rows, columns, is_transposed=False)
    for i in range(shape.n_layer):
        for kind in ("weight", "bias"):
            split = [weights.pop(f"blocks.{i}.attn.{letter}.{kind}", None) for letter in "qkv"]
            present = [tensor for tensor in split if tensor is not None]
            if present:
                size = present[0].shape
                weights[f"blocks.{i}.attn.qkv.{kind}"] = torch.cat([torch.zeros(size) if p is None else p for p in split])
    return weights


def with_biases(weights: dict[str, Tensor]) -> tuple[dict[str, Tensor], bool]:
    """`weights` with a bias in every layer, or in none if every bias is zero; and whether there are any."""
    biases = {name for name in weights if name.endswith(".bias")}
    if not any(weights[name].any() for name in biases):
        return {name: tensor for name, tensor in weights.items() if name not in biases}, False
    named = [name.removesuffix(".weight") for name in weights if name.endswith(".weight") and "embedding" not in name]
    missing = {f"{layer}.bias": torch.zeros(weights[f"{layer}.weight"].size(0)) for layer in named}
    return {**missing, **weights}, True


def _expected(shape: ModelConfig, names: Mapping[str, str]) -> Iterable[tuple[str, int, int]]:
    """Our name of every layer, and the rows and columns of its matrix; a norm has 0 columns."""
    C = shape.n_embd
    sizes = {"attn.qkv": (3 * C, C), "mlp.up": (4 * C, C), "mlp.down": (C, 4 * C), "norm_1": (C, 0), "norm_2": (C, 0)}
    for i in range(shape.n_layer):
        for layer in names:
            yield f"blocks.{i}.{layer}", *sizes.get(layer, (C, C))
    yield "norm", C, 0


def _read_layer(
    source: TensorSource, weights: dict[str, Tensor], name: str, theirs: str, rows: int, columns: int, *, is_transposed: bool
) -> None:
    """Read the weight of a layer, and its bias if there is one."""
    turned = is_transposed and columns
    size = ((columns, rows) if turned else (rows, columns)) if columns else (rows,)
    weight = source.read(f"{theirs}.weight", size)
    weights[f"{name}.weight"] = weight.t().contiguous() if turned else weight
    if f"{theirs}.bias" in source:
        weights[f"{name}.bias"] = source.read(f"{theirs}.bias", (rows,))
