"""Causal self-attention for training in bfloat16 on the CPU, by attention.c, which is compiled when it is first needed.

It reads queries, keys and values where the projection leaves them, and skips what no character may see. Where it cannot be
compiled, model.py attends alone.
"""

import ctypes
import functools
from collections.abc import Callable
from ctypes import POINTER, Structure, byref, c_int, c_size_t, c_void_p
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from chargpt.kernels.compiler import load

SOURCE = Path(__file__).with_name("attention.c")
FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fopenmp")
# Linked without -fopenmp: a second OpenMP library would bring threads of its own, to compete with those of torch for the
# cores. This way the one that torch has loaded is taken, and where torch has none, loading fails.
LINK = ("-lm",)

Attention = Callable[[Tensor, int, Tensor | None], Tensor]


class _Shape(Structure):
    _fields_ = [*((name, c_int) for name in ("B", "T", "h", "d", "threads")), ("cosine", c_void_p), ("sine", c_void_p)]


def load_kernel(cache: Path | None = None) -> ctypes.CDLL | None:
    """attention.c, compiled for this CPU unless `cache` (default: ~/.cache/chargpt) has it. None where that cannot be done."""
    kernel = load(SOURCE, flags=FLAGS, link=LINK, cache=cache)
    if kernel is None:
        return None
    kernel.attention_memory.argtypes = [POINTER(_Shape)]
    kernel.attention_memory.restype = c_size_t
    for function, pointers in ((kernel.attention_forward, 4), (kernel.attention_backward, 6)):
        function.argtypes = [POINTER(_Shape), *[c_void_p] * pointers]
        function.restype = None
    return kernel


def fused_attention(kernel: ctypes.CDLL | None = None) -> Attention | None:
    """A function of the projection's output (B, T, 3 C) in bfloat16, the number of heads, and the rotary table (2, T, d / 2)
    or None, to the heads' outputs side by side, (B, T, C). None where it cannot be had. `kernel` is one already loaded."""
    kernel = kernel or load_kernel()
    return None if kernel is None else functools.partial(_attend, kernel)


def _attend(kernel: ctypes.CDLL, qkv: Tensor, n_head: int, rotary: Tensor | None = None) -> Tensor:
    assert qkv.is_cpu and qkv.dtype == torch.bfloat16, (qkv.device, qkv.dtype)
    return _FusedAttention.apply(qkv.contiguous(), n_head, rotary, kernel)


class _FusedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, qkv: Tensor, n_head: int, rotary: Tensor | None, kernel: ctypes.CDLL) -> Tensor:
        B, T, C = qkv.size(0), qkv.size(1), qkv.size(2) // 3
        shape = _Shape(B, T, n_head, C // n_head, torch.get_num_threads())
        if rotary is not None:
            ctx.tables = tuple(table.to(torch.bfloat16).contiguous() for table in rotary)  # kept while the shape points to them
            shape.cosine, shape.sine = (table.data_ptr() for table in ctx.tables)
        y, normaliser = qkv.new_empty(B, T, C), qkv.new_empty(B, n_head, T, dtype=torch.float32)
        memory = torch.empty(shape.threads * kernel.attention_memory(byref(shape)), dtype=torch.uint8)
        kernel.attention_forward(byref(shape), qkv.data_ptr(), y.data_ptr(), normaliser.data_ptr(), memory.data_ptr())
        ctx.save_for_backward(qkv, y, normaliser)
        ctx.shape, ctx.kernel = shape, kernel
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor) -> tuple[Tensor, None, None, None]:
        qkv, y, normaliser = ctx.saved_tensors
        dy, dqkv = dy.contiguous(), torch.empty_like(qkv)
        memory = torch.empty(ctx.shape.threads * ctx.kernel.attention_memory(byref(ctx.shape)), dtype=torch.uint8)
        tensors = (qkv, y, normaliser, dy, dqkv, memory)
        ctx.kernel.attention_backward(byref(ctx.shape), *(tensor.data_ptr() for tensor in tensors))
        return dqkv, None, None, None
