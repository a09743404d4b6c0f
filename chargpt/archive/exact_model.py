"""The model in exact arithmetic: the frequency of every character, the same to the bit wherever it is computed.

`TorchEngine` is the reference. `CEngine` computes the same by chargpt/kernels/exact.c.
"""

import ctypes
import math
import time
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chargpt.archive.exact_arithmetic import exponential, gelu, norm, product_bits, rotate, rounded, sum_bits, turns, unit_of
from chargpt.kernels import exact
from chargpt.kernels.compiler import Unavailable
from chargpt.model import GPT, SINUSOID_SCALE, Block, GPTConfig, causal_mask
from chargpt.terminal import UserError

# The most likely character has a frequency of 2^24 + 1, and none has less than 1.
FREQUENCY_BITS = 24
# The name of the fast engine.
COMPILED = "compiled"


class Engine(Protocol):
    """Computes frequencies for B texts at once. It remembers what it has read of each."""

    symbols: int  # ids that have a frequency

    def read(self, ids: Tensor, *, start: int, wanted: int) -> Tensor:
        """The frequencies of the ids after each of the last `wanted` of ids (B, T), int64, (B, wanted, symbols).

        The ids are at positions from `start` on; at 0, the engine forgets what it has read before. B stays the same until then.
        """
        ...


class Layer:
    """The numbers of one block, float64, on the CPU: matrices (N, K) with rounded rows, vectors as they are."""

    def __init__(self, block: Block) -> None:
        attn, mlp = block.attn, block.mlp
        self.norm_1, self.norm_2 = _vectors(block.norm_1), _vectors(block.norm_2)
        self.qkv, self.proj, self.up, self.down = (_linear(linear) for linear in (attn.qkv, attn.proj, mlp.up, mlp.down))


class ExactWeights:
    """The numbers of a model, for the first `symbols` ids of its vocabulary."""

    def __init__(self, model: GPT, symbols: int) -> None:
        config = model.config
        self.config, self.symbols = config, symbols
        with torch.no_grad():
            self.tokens = model.token_embedding.weight.detach().cpu().double()
            self.logits = rounded(self.tokens[:symbols], product_bits(config.n_embd))
            self.layers = [Layer(block) for block in model.blocks]
            self.norm = _vectors(model.norm)
            self.positions = _added_positions(model)  # (block_size, C), or None
        d = config.n_embd // config.n_head
        self.rotary = turns(config.block_size, d) if config.positions == "rotary" else None  # (2, block_size, d / 2)


def _added_positions(model: GPT) -> Tensor | None:
    config = model.config
    if config.positions == "rotary":
        return None
    if config.positions == "learned":
        return model.position_embedding.weight.detach().cpu().double()
    if config.positions != "sinusoidal":
        raise UserError(f"model.positions: {config.positions}; compress and decompress know learned, sinusoidal and rotary")
    cos, sin = turns(config.block_size, config.n_embd) * SINUSOID_SCALE
    return torch.stack((sin, cos), dim=-1).flatten(1)[:, : config.n_embd].contiguous()


def _vectors(layer: nn.LayerNorm) -> tuple[Tensor, Tensor | None]:
    weight = layer.weight.detach().cpu().double()
    return weight, None if layer.bias is None else layer.bias.detach().cpu().double()


def _linear(layer: nn.Linear) -> tuple[Tensor, Tensor | None]:
    weight = layer.weight.detach().cpu().double()
    return rounded(weight, product_bits(weight.size(1))), None if layer.bias is None else layer.bias.detach().cpu().double()


class TorchEngine:
    """The reference, in torch on the CPU. exact.c is compared with it."""

    def __init__(self, weights: ExactWeights) -> None:
        self._weights, self.symbols = weights, weights.symbols

    @torch.inference_mode()
    def read(self, ids: Tensor, *, start: int, wanted: int) -> Tensor:
        weights, (B, T) = self._weights, ids.shape
        config, d = weights.config, weights.config.n_embd // weights.config.n_head
        if start == 0:
            self._keys, self._values, self._units = (_new_cache(config, B, width) for width in (d, d, 1))
        x = weights.tokens[ids]  # (B, T, C)
        if weights.positions is not None:
            x = x + weights.positions[start : start + T]
        for i, layer in enumerate(weights.layers):
            x = x + self._attention(i, layer, norm(x, *layer.norm_1), start)
            hidden = gelu(product(norm(x, *layer.norm_2), *layer.up))
            x = x + product(hidden, *layer.down)
        return frequencies(product(norm(x[:, T - wanted :], *weights.norm), weights.logits, None))

    def _attention(self, i: int, layer: Layer, x: Tensor, start: int) -> Tensor:
        """The output of layer i's attention for x (B, T, C), whose first row is at position `start`."""
        config = self._weights.config
        B, T, C = x.shape
        h, d, S = config.n_head, C // config.n_head, start + T
        q, k, v = product(x, *layer.qkv).view(B, T, 3, h, d).permute(2, 0, 3, 1, 4).unbind(0)  # (B, h, T, d) each
        if self._weights.rotary is not None:
            table = self._weights.rotary[:, start:S]
            q, k = rotate(q, table), rotate(k, table)
        bits, terms = product_bits(d), product_bits(config.block_size)
        # A sum over keys needs one unit for all of them. So the values are stored as whole numbers of units, and each unit is
        # multiplied with the weight of its key, before that is rounded.
        units = unit_of(v.contiguous(), terms)
        self._keys[i][:, :, start:S] = rounded(k.contiguous(), bits)
        self._values[i][:, :, start:S] = rounded(v.contiguous(), terms) / units
        self._units[i][:, :, start:S] = units
        keys, values, units = (cache[i][:, :, :S] for cache in (self._keys, self._values, self._units))
        scores = rounded(q.contiguous(), bits) @ keys.transpose(2, 3) * (1 / math.sqrt(d))  # (B, h, T, S)
        seen = causal_mask(T, S)
        scores = scores.masked_fill(~seen, -math.inf)
        weights = exponential(scores - scores.amax(dim=-1, keepdim=True)) * seen
        total = rounded(weights, terms).sum(dim=-1, keepdim=True)
        mixed = rounded(weights * units.transpose(2, 3), terms) @ values / total
        return product(mixed.transpose(1, 2).reshape(B, T, C), *layer.proj)


def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (..., K) times the transpose of weight (N, K), whose rows are rounded, plus bias (N)."""
    y = rounded(x, product_bits(weight.size(1))) @ weight.T
    return y if bias is None else y + bias


def frequencies(logits: Tensor) -> Tensor:
    """Whole numbers of 1 or more that are proportional to the probabilities, int64, for logits (..., symbols)."""
    likelihood = exponential(logits - logits.amax(dim=-1, keepdim=True))
    return (likelihood * 2.0**FREQUENCY_BITS).to(torch.int64) + 1


def _new_cache(config: GPTConfig, B: int, width: int) -> list[Tensor]:
    """Memory for each layer, (B, h, block_size, width)."""
    return [torch.zeros(B, config.n_head, config.block_size, width, dtype=torch.float64) for _ in range(config.n_layer)]


def choose_engine(model: GPT, symbols: int) -> tuple[Engine, str]:
    """The fastest engine for the first `symbols` ids of a model, and its name for the user. All give the same bits."""
    weights = ExactWeights(model, symbols)
    try:
        return CEngine(weights, exact.load_kernel(), threads=torch.get_num_threads()), COMPILED
    except Unavailable as reason:
        return TorchEngine(weights), f"not compiled: {reason}"


def seconds_for_next(engine: Engine, context: int, *, texts: int) -> float:
    """How long the engine takes for the next character of this many texts, in the middle of a context; measured."""
    ids = torch.zeros(texts, 1, dtype=torch.int64)
    engine.read(ids, start=0, wanted=1)
    started = time.perf_counter()
    engine.read(ids, start=context // 2, wanted=1)
    return max(1e-6, time.perf_counter() - started)


class CEngine:
    """The engine in C. Threads share the texts of a call."""

    def __init__(self, weights: ExactWeights, kernel: ctypes.CDLL, *, threads: int) -> None:
        self._kernel, self._weights, self.symbols = kernel, weights, weights.symbols
        self._used_by_kernel: list[Tensor] = []  # what pointers lead to
        self._model = self._described()
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads)  # it starts no thread before it is needed
        self._caches = self._new_caches(0)  # one for each text

    def read(self, ids: Tensor, *, start: int, wanted: int) -> Tensor:
        B, T = ids.shape
        if start == 0 and len(self._caches) != B:
            self._caches = self._new_caches(B)
        assert len(self._caches) == B and start + T <= self._weights.config.block_size, (B, start, T)
        ids = ids.contiguous()
        result = torch.empty(B, wanted, self._weights.symbols, dtype=torch.int64)
        ends = [B * chunk // self._threads for chunk in range(self._threads + 1)]

        def read_chunk(first: int, end: int) -> int:
            caches = byref(self._caches[first])
            into = result[first:end].data_ptr()
            texts = ids[first:end].data_ptr(), end - first
            return self._kernel.exact_read(byref(self._model), caches, *texts, start, T, wanted, into)

        chunks = [chunk for chunk in zip(ends, ends[1:]) if chunk[0] < chunk[1]]
        if any(self._pool.map(lambda chunk: read_chunk(*chunk), chunks) if len(chunks) > 1 else [read_chunk(*chunks[0])]):
            raise MemoryError(f"not enough for {B * T:,} characters at once")
        return result

    def _described(self) -> exact.Model:
        """The model as the structure that exact.c reads."""
        weights, config = self._weights, self._weights.config
        layers = (exact.Layer * config.n_layer)()
        for described, layer in zip(layers, weights.layers):
            described.norm_1, described.norm_2 = self._pair(layer.norm_1), self._pair(layer.norm_2)
            for name in ("qkv", "proj", "up", "down"):
                setattr(described, name, self._linear(*getattr(layer, name)))
        C = config.n_embd
        return exact.Model(
            config.n_layer,
            config.n_head,
            C,
            config.block_size,
            weights.symbols,
            bits_width=product_bits(C),
            bits_hidden=product_bits(4 * C),
            bits_head=product_bits(C // config.n_head),
            bits_keys=product_bits(config.block_size),
            bits_sum=sum_bits(C),
            layers=layers,
            norm=self._pair(weights.norm),
            logits=self._linear(weights.logits, None),
            tokens=self._pointer(weights.tokens),
            positions=self._pointer(weights.positions),
            rotary=self._pointer(weights.rotary),
        )

    def _linear(self, weight: Tensor, bias: Tensor | None) -> exact.Linear:
        """Panels of PANEL outputs, input by input, in float32, which holds the rounded weights exactly."""
        N, K = weight.shape
        padded = F.pad(weight.float(), (0, 0, 0, -N % exact.PANEL))
        panels = padded.view(-1, exact.PANEL, K).transpose(1, 2)
        return exact.Linear(self._pointer(panels), self._pointer(bias))

    def _pair(self, vectors: tuple[Tensor, Tensor | None]) -> ctypes.Array:
        return (ctypes.c_void_p * 2)(*map(self._pointer, vectors))

    def _pointer(self, tensor: Tensor | None) -> int | None:
        if tensor is None:
            return None
        tensor = tensor.contiguous()
        self._used_by_kernel.append(tensor)
        return tensor.data_ptr()

    def _new_caches(self, texts: int) -> ctypes.Array:
        config = self._weights.config
        heads, positions = config.n_layer * config.n_head, config.block_size
        keys, values = (torch.zeros(texts, heads, positions, config.n_embd // config.n_head) for _ in range(2))
        units = torch.zeros(texts, heads, positions, dtype=torch.float64)
        self._cached = (keys, values, units)
        return (exact.Cache * texts)(
            *(exact.Cache(*(tensor[text].data_ptr() for tensor in self._cached)) for text in range(texts))
        )
