"""Loads the C library of training on the CPU, for float32 or bfloat16, and computes causal self-attention with it.

The attention reads queries, keys and values from the projection's output without copying them into heads, and skips the keys
after each query. Where there is no library, or for models that it does not support, the attention of model.py is used.
"""

import ctypes
import functools
import hashlib
import sys
from ctypes import POINTER, Structure, byref, c_int, c_size_t, c_void_p
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chargpt.config import ModelConfig
from chargpt.kernels.compiler import STEP_BFLOAT16, STEP_FLOAT32, Source, declare, load
from chargpt.model import GPTConfig
from chargpt.standard import has_standard_attention

SOURCES = {torch.float32: STEP_FLOAT32, torch.bfloat16: STEP_BFLOAT16}
WINDOWS_OPENMP = "libiomp5md.dll"  # Intel's OpenMP, which torch brings on Windows

PANEL = 32  # sizes are padded to multiples of this


class _OpenMP(Structure):
    """Functions of the OpenMP library that torch has loaded. See `OpenMP` in parallel.h."""

    _fields_ = [
        (name, c_void_p)
        for name in ("GOMP_parallel", "__kmpc_global_thread_num", "__kmpc_push_num_threads", "__kmpc_fork_call")
    ]


class _Attention(Structure):
    _fields_ = [
        *((name, c_int) for name in ("B", "T", "h", "d", "threads")),
        *((name, c_void_p) for name in ("cosine", "sine", "qkv", "dy", "y", "dqkv", "log2_sum", "scratch")),
        ("openmp", _OpenMP),
    ]

    def call(self, kernel: ctypes.CDLL, function: str, **tensors: Tensor) -> None:
        """Call a function of the library with the tensors of these names, which are contiguous."""
        scratch = torch.empty(self.threads * kernel.attention_scratch_size(byref(self)), dtype=torch.uint8)
        for name, tensor in {**tensors, "scratch": scratch}.items():
            setattr(self, name, tensor.data_ptr())
        getattr(kernel, function)(byref(self))


def fits(config: ModelConfig | GPTConfig) -> bool:
    """Whether the heads of this model are within the sizes that a kernel counts."""
    return config.block_size * (config.n_embd // config.n_head + PANEL) < 2**31


def supports(config: ModelConfig | GPTConfig) -> bool:
    """Whether a kernel computes this model's attention. Other models keep the attention of model.py."""
    return fits(config) and has_standard_attention(config)


@functools.cache
def openmp() -> _OpenMP:
    """The OpenMP library that torch has loaded, whose threads a kernel uses; no functions where there is none."""
    if sys.platform == "win32":
        module = ctypes.windll.kernel32.GetModuleHandleW
        module.restype, module.argtypes = c_void_p, [ctypes.c_wchar_p]
        handle = module(WINDOWS_OPENMP)
        library = ctypes.CDLL(WINDOWS_OPENMP, handle=handle) if handle else None
    else:
        library = ctypes.CDLL(None)
    found = _OpenMP()
    for name in (field[0] for field in _OpenMP._fields_):
        if library is not None and hasattr(library, name):
            setattr(found, name, ctypes.cast(library[name], c_void_p).value)
    return found


@functools.cache
def load_kernel(source: Source, cache: Path | None = None) -> ctypes.CDLL:
    """The library of one of SOURCES, as `load` of compiler.py finds it, once in a process. Raises Unavailable."""
    kernel, attention = load(source, cache=cache), POINTER(_Attention)
    declare(kernel, attention_scratch_size=(c_size_t, attention))
    declare(kernel, attention_forward=(None, attention), attention_backward=(None, attention))
    return kernel


def build_of(kernel: ctypes.CDLL) -> str:
    """What decides the bits of its results: the library itself."""
    return hashlib.sha256(Path(kernel._name).read_bytes()).hexdigest()[:8]


class FusedAttention:
    """The fastest attention for `dtype`, float32 or bfloat16, on this CPU. It is for models that `supports` accepts."""

    def __init__(self, dtype: torch.dtype, library: ctypes.CDLL | None = None) -> None:
        """Without a `library`, the one for this CPU. Raises Unavailable where it does not compile or load."""
        self._kernel, self._dtype, self._openmp = library or load_kernel(SOURCES[dtype]), dtype, openmp()
        self.build = build_of(self._kernel)

    def __call__(self, qkv: Tensor, n_head: int, rotary: Tensor | None = None) -> Tensor:
        """The outputs of the heads side by side, (B, T, C), from the projection's output `qkv` (B, T, 3 C).

        `rotary` is the table of rotary positions (2, T, d / 2), or None. Raises ValueError for tensors of other shapes.
        """
        B, T, width = qkv.shape
        table = None if rotary is None else tuple(rotary.shape)
        if not qkv.is_cpu or qkv.dtype != self._dtype or not B * T or width % (3 * n_head) or not width:
            raise ValueError(f"qkv is {tuple(qkv.shape)}, {qkv.dtype} on {qkv.device}, for {n_head} heads of {self._dtype}")
        if table not in (None, (2, T, width // 3 // n_head // 2)) or (table and width // 3 // n_head % 2):
            raise ValueError(f"the rotary table is {table}, for {T} characters and heads of {width // 3 // n_head} channels")
        return _Attend.apply(qkv.contiguous(), n_head, rotary, self._kernel, self._openmp)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx, qkv: Tensor, n_head: int, rotary: Tensor | None, kernel: ctypes.CDLL, openmp: _OpenMP) -> Tensor:
        B, T, C = qkv.size(0), qkv.size(1), qkv.size(2) // 3
        attention = _Attention(B, T, n_head, C // n_head, min(torch.get_num_threads(), B * n_head), openmp=openmp)
        if rotary is not None:
            ctx.tables = tuple(table.to(qkv.dtype).contiguous() for table in rotary)  # the structure points to them
            attention.cosine, attention.sine = (table.data_ptr() for table in ctx.tables)
        y, log2_sum = qkv.new_empty(B, T, C), qkv.new_empty(B, n_head, T, dtype=torch.float32)
        attention.call(kernel, "attention_forward", qkv=qkv, y=y, log2_sum=log2_sum)
        ctx.save_for_backward(qkv, y, log2_sum)
        ctx.attention, ctx.kernel = attention, kernel
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor) -> tuple[Tensor, None, None, None, None]:
        qkv, y, log2_sum = ctx.saved_tensors
        given = {"qkv": qkv, "y": y, "log2_sum": log2_sum, "dy": dy.contiguous(), "dqkv": torch.empty_like(qkv)}
        ctx.attention.call(ctx.kernel, "attention_backward", **given)
        return given["dqkv"], None, None, None, None
