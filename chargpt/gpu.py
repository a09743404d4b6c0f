"""What a GPU computes in place of parts of model.py: the same numbers, but for their rounding, in fewer kernels.

A small step takes 4 to 5 us for each of its kernels, whatever they compute (docs/lab/speed.md, on a GPU). model.py has the
forms that are read most easily. Only models whose attention is that of the standard model get these.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from chargpt.model import GPT

ONE_HOT = 512  # ids of a vocabulary, up to which an embedding is a product: for its gradient, torch sorts ids by 14 kernels


def attention(qkv: Tensor, n_head: int, rotary: Tensor | None = None) -> Tensor:
    """Causal self-attention, as `fused` of model.py: (B, T, C) of qkv (B, T, 3 C) and the table (2, T, d/2)."""
    q, k, v = heads(qkv, n_head, rotary)
    return F.scaled_dot_product_attention(q, k, v, is_causal=q.size(2) > 1).transpose(1, 2).flatten(2)


def heads(qkv: Tensor, n_head: int, rotary: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, (B, h, T, d) each, without a copy. Queries and keys are rotated together."""
    parts = qkv.unflatten(-1, (3 * n_head, -1))  # (B, T, 3 h, d)
    if rotary is None:
        q, k, v = parts.split(n_head, dim=2)
    else:
        turning, v = parts.split((2 * n_head, n_head), dim=2)
        q, k = _Rotation.apply(turning, rotary).split(n_head, dim=2)
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


class _Rotation(torch.autograd.Function):
    """`rotate` of model.py for x (B, T, heads, d), in three kernels. The gradient is rotated back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, table: Tensor) -> Tensor:
        ctx.save_for_backward(table)
        return _rotated(x, table, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (table,) = ctx.saved_tensors
        return _rotated(gradient, table, -1), None


def _rotated(x: Tensor, table: Tensor, direction: int) -> Tensor:
    cos, sin = table.to(x.dtype)[:, :, None]  # (T, 1, d/2)
    first, second = x.chunk(2, dim=-1)
    turned = x.unflatten(-1, (2, -1)) * cos[:, :, None]  # (B, T, heads, 2, d/2)
    turned[..., 0, :].addcmul_(second, sin, value=-direction)
    turned[..., 1, :].addcmul_(first, sin, value=direction)
    return turned.flatten(-2)


class OneHotEmbedding(nn.Embedding):
    """The product with a one-hot matrix: its gradient is another product, summed in float32."""

    def forward(self, idx: Tensor) -> Tensor:
        ids = torch.arange(self.num_embeddings, device=idx.device)
        return (idx[..., None] == ids).to(self.weight.dtype) @ self.weight


def quicken(model: GPT, *, is_standard: bool) -> None:
    """Let `model` compute so, which training calls: its attention, and if all of it `is_standard`, its embedding, too."""
    for block in model.blocks:
        block.attn.fused = attention
    if model.vocab_size <= ONE_HOT and is_standard:
        model.token_embedding.__class__ = OneHotEmbedding  # type: ignore[assignment]
