"""The model in exact arithmetic by exact.c, and the choice between it and the reference in torch."""

import ctypes
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref

import torch
import torch.nn.functional as F
from torch import Tensor

from chargpt.archive.exact_arithmetic import product_bits, sum_bits
from chargpt.archive.exact_model import Engine, ExactWeights, TorchEngine
from chargpt.kernels.compiler import Unavailable
from chargpt.kernels.exact import PANEL, Cache, Layer, Linear, Model, load_kernel
from model import GPT


def choose_engine(model: GPT, symbols: int) -> tuple[Engine, str]:
    """The fastest engine for the first `symbols` ids of a model, and its name for the user. All give the same bits."""
    weights = ExactWeights(model, symbols)
    try:
        return CEngine(weights, load_kernel(), threads=torch.get_num_threads()), "compiled"
    except Unavailable as reason:
        return TorchEngine(weights), f"not compiled: {reason}"


class CEngine:
    """The engine in C. Threads share the texts of a call."""

    def __init__(self, weights: ExactWeights, kernel: ctypes.CDLL, *, threads: int) -> None:
        self._kernel, self._weights, self.symbols = kernel, weights, weights.symbols
        self._used_by_kernel: list[Tensor] = []  # what pointers lead to
        self._model = self._described()
        self._parts = threads
        self._pool = ThreadPoolExecutor(threads)  # it starts no thread before it is needed
        self._caches: ctypes.Array | None = None  # a Cache for each text

    def read(self, ids: Tensor, *, start: int, wanted: int) -> Tensor:
        B, T = ids.shape
        if start == 0 and (self._caches is None or len(self._caches) != B):
            self._caches = self._new_caches(B)
        assert len(self._caches) == B and start + T <= self._weights.config.block_size, (B, start, T)
        ids = ids.contiguous()
        result = torch.empty(B, wanted, self._weights.symbols, dtype=torch.int64)
        ends = [B * part // self._parts for part in range(self._parts + 1)]

        def read_part(first: int, end: int) -> int:
            caches = byref(self._caches[first])
            into = result[first:end].data_ptr()
            texts = ids[first:end].data_ptr(), end - first
            return self._kernel.exact_read(byref(self._model), caches, *texts, start, T, wanted, into)

        parts = [part for part in zip(ends, ends[1:]) if part[0] < part[1]]
        if any(self._pool.map(lambda part: read_part(*part), parts) if len(parts) > 1 else [read_part(*parts[0])]):
            raise MemoryError(f"not enough for {B * T:,} characters at once")
        return result

    def _described(self) -> Model:
        """The model as the structure that exact.c reads."""
        weights, config = self._weights, self._weights.config
        layers = (Layer * config.n_layer)()
        for described, layer in zip(layers, weights.layers):
            described.norm_1, described.norm_2 = self._pair(layer.norm_1), self._pair(layer.norm_2)
            for name in ("qkv", "proj", "up", "down"):
                setattr(described, name, self._linear(*getattr(layer, name)))
        C = config.n_embd
        return Model(
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

    def _linear(self, weight: Tensor, bias: Tensor | None) -> Linear:
        """Panels of PANEL outputs, input by input, in float32, which holds the rounded weights exactly."""
        N, K = weight.shape
        padded = F.pad(weight.float(), (0, 0, 0, -N % PANEL))
        panels = padded.view(-1, PANEL, K).transpose(1, 2)
        return Linear(self._pointer(panels), self._pointer(bias))

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
        return (Cache * texts)(*(Cache(*(tensor[text].data_ptr() for tensor in self._cached)) for text in range(texts)))
