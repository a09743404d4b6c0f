"""A character-level GPT: GPT-2's architecture in one file that imports only torch and the standard library.

The letters in shape comments:
    B  batch, independent sequences           h  attention heads (n_head)
    T  time, characters in a sequence         d  head size (n_embd / n_head)
    C  channels, the model's width (n_embd)   V  vocabulary size
    S  characters attended to: T, plus what the cache already holds
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# This file is the model: change it, and chargpt trains, samples and scores what it says. docs/change-the-model.md has examples.
# Code in C computes the same faster; chargpt compares the two by their numbers, and leaves a changed model to this file.

INITIAL_STD = 0.02  # GPT-2's initial standard deviation; here, of the matrices whose output is added to the residual stream
EMBEDDING_STD = 2 * INITIAL_STD

# The paper multiplies embeddings by sqrt(n_embd), because sinusoids of amplitude 1 would dominate them. Scaling the sinusoids
# down gives the same balance, and the table can then be exported as a GPT-2 position embedding. The chosen root mean square,
# 0.08, is what learned position embeddings reach in training. Token embeddings reach about 0.14, so 0.02 would be too small.
SINUSOID_SCALE = 2 * EMBEDDING_STD * math.sqrt(2)

ATTENTION_BOUND = 0.05  # between two ways to compute attention, relative; in bfloat16, they differ by some 0.01
TABLE_NUMBERS = 2**22  # a position table of this size is computed in advance, of a larger one, the positions that are used


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """The shape of a GPT. The fields are nanoGPT's, but `positions` is new, and vocab_size is an argument of `GPT` because it
    comes from the text. In chargpt, ModelConfig of config.py has the same fields and checks them.
    """

    n_layer: int = 4  # number of blocks
    n_head: int = 4  # attention heads in each block; n_embd is a multiple of it
    n_embd: int = 128  # width of the model: channels of the residual stream
    block_size: int = 128  # context: how many characters the model sees at once
    dropout: float = 0.0  # fraction of the activations that is set to zero in training
    bias: bool = False  # biases in linear layers and norms, as in GPT-2
    positions: str = "learned"  # how the model encodes positions, one of POSITIONS


class KVCache:
    """The keys and values of one layer for the characters read so far. It grows with them, up to block_size characters."""

    def __init__(self, batch_size: int, config: GPTConfig, *, device: torch.device, dtype: torch.dtype) -> None:
        self.block_size = config.block_size
        self.keys = torch.empty(batch_size, config.n_head, 0, config.n_embd // config.n_head, device=device, dtype=dtype)
        self.values = self.keys
        self.length = 0

    def reserve(self, end: int) -> None:
        """Have memory for `end` characters."""
        if end > self.block_size:
            raise ValueError(f"the cache holds at most {self.block_size} characters; {end} given")
        if end > (size := self.keys.size(2)):
            B, h, _, d = self.keys.shape
            room = self.keys.new_zeros(2, B, h, min(self.block_size, max(end, 2 * size, 64)) - size, d)
            self.keys, self.values = (torch.cat((old, new), dim=2) for old, new in zip((self.keys, self.values), room))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Append k and v, and let q see them and all before them: `causal_attention`, all (B, h, T, d)."""
        end = self.length + k.size(2)
        self.reserve(end)
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.length = end
        return causal_attention(q, self.keys[:, :, :end], self.values[:, :, :end])


def reference_attention(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None = None, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """Attention as in the paper: softmax(q k^T * scale) v. Slow and readable; the fast path is tested against it.

    q is (B, h, T, d); k and v are (B, h, S, d). `mask` is True where a query may see a key, (B, 1, T, S) or (B, T, S);
    with None, every query sees every key. `scale` defaults to 1/sqrt(d). Returns the output (B, h, T, d) and the
    weights (B, h, T, S). "Attention Is All You Need" (arXiv 1706.03762), section 3.2.1.
    """
    scale = 1.0 / math.sqrt(q.size(-1)) if scale is None else scale
    scores = q @ k.transpose(-2, -1) * scale  # (B, h, T, S)
    if mask is not None:
        mask = mask.unsqueeze(1) if mask.dim() == 3 else mask
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(dim=-1)
    return weights @ v, weights


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The fast path: `reference_attention` with a causal mask, by the fastest method for the device and dtype."""
    T, S, shape = q.size(2), k.size(2), q.shape
    if q.is_cpu and q.dtype == torch.bfloat16:
        # The backward pass of torch's fused CPU kernel takes five times as long in bfloat16.
        hidden = torch.full((T, S), float("-inf"), dtype=q.dtype).triu(S - T + 1)
        q, k, v = (x.reshape(-1, *x.shape[2:]) for x in (q, k, v))  # (B * h, ., d)
        scores = torch.baddbmm(hidden, q, k.transpose(1, 2), alpha=1.0 / math.sqrt(q.size(-1)))  # (B * h, T, S)
        return torch.bmm(scores.softmax(dim=-1), v).view(shape)
    mask = causal_mask(T, S, device=q.device) if 1 < T < S else None
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=T == S and T > 1)


def causal_mask(T: int, S: int | None = None, *, device: torch.device | None = None) -> Tensor:
    """True where one of the last T of S characters may see another: itself and those before it, (T, S)."""
    S = T if S is None else S
    return torch.ones(T, S, dtype=torch.bool, device=device).tril(diagonal=S - T)


def sinusoids(length: int, width: int) -> Tensor:
    """The paper's position table (length, width): sin at even columns, cos at odd ones (section 3.5)."""
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    frequency = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    table = torch.zeros(length, width, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)[:, : width // 2]
    return table.float()


def rotary_table(length: int, head_size: int) -> Tensor:
    """Cosines and sines (2, length, head_size / 2) of RoFormer's rotary positions (arXiv 2104.09864)."""
    frequency = 10000.0 ** (-torch.arange(0, head_size, 2, dtype=torch.float64) / head_size)
    angle = torch.arange(length, dtype=torch.float64).unsqueeze(1) * frequency
    return torch.stack((angle.cos(), angle.sin())).float()


# The kinds of positions: what makes the table of each for T characters. One (T, C) is added to token embeddings; one of cosines
# and sines (2, T, d/2) rotates queries and keys. None: learned weights, which are `position_embedding`.
POSITIONS: dict[str, Callable[[GPTConfig, int], Tensor] | None] = {
    "learned": None,
    "sinusoidal": lambda config, length: sinusoids(length, config.n_embd) * SINUSOID_SCALE,
    "rotary": lambda config, length: rotary_table(length, config.n_embd // config.n_head),
}


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Rotate each pair (x[i], x[i + d/2]) of queries or keys (B, h, T, d) by the angle of its position; table (2, T, d/2)."""
    cos, sin = table.to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class CausalSelfAttention(nn.Module):
    """Multi-head causal self-attention with one fused projection for queries, keys and values.

    Dropout applies to the output, not to the attention weights as in GPT-2, which takes as long as the rest of a step on a CPU.
    `fused`, if set, is a faster function for what happens between the projections, without a cache. It takes qkv (B, T, 3 C),
    n_head and the rotary table, and returns the outputs of the heads side by side, (B, T, C).
    """

    fused: Callable[[Tensor, int, Tensor | None], Tensor] | None = None

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.n_head = config.n_head
        self.dropout = config.dropout
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)

    def heads(self, x: Tensor, rotary: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of x (B, T, C), each (B, h, T, d)."""
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.n_head, C // self.n_head).permute(2, 0, 3, 1, 4).contiguous().unbind(0)
        if rotary is not None:
            q, k = rotate(q, rotary), rotate(k, rotary)
        return q, k, v

    def forward(self, x: Tensor, rotary: Tensor | None = None, cache: KVCache | None = None) -> Tensor:
        B, T, C = x.shape
        if self.fused is not None and cache is None:
            y = self.fused(self.qkv(x), self.n_head, rotary)  # (B, T, C)
        else:
            attend = causal_attention if cache is None else cache.attend
            y = attend(*self.heads(x, rotary)).transpose(1, 2).reshape(B, T, C)
        return F.dropout(self.proj(y), self.dropout, self.training)

    def reference(self, x: Tensor, rotary: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`forward` by `reference_attention`, without dropout: the output (B, T, C) and the weights (B, h, T, T)."""
        B, T, C = x.shape
        y, weights = reference_attention(*self.heads(x, rotary), mask=causal_mask(T, device=x.device)[None, None])
        return self.proj(y.transpose(1, 2).reshape(B, T, C)), weights


class MLP(nn.Module):
    """The position-wise feed-forward part: a linear layer to four times the width, GELU, and a linear layer back.

    This is the exact GELU with the error function, not GPT-2's tanh approximation. The two differ by less than 0.0005, but on a
    CPU torch takes five times as long for the approximation. Exports name the exact one (`gelu` in transformers).
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.down = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)
        self.dropout = config.dropout

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.down(F.gelu(self.up(x))), self.dropout, self.training)


class Embedding(nn.Embedding):
    """torch's Embedding, but with its gradient summed in float32: in bfloat16 on a CPU, torch sums it in bfloat16."""

    def forward(self, idx: Tensor) -> Tensor:
        return F.embedding(idx, self.weight.float()).to(self.weight.dtype)


class LayerNorm(nn.LayerNorm):
    """torch's LayerNorm, but not in bfloat16 on a CPU, where torch's gradients are half wrong over 16,384 characters."""

    def forward(self, x: Tensor) -> Tensor:
        if not (x.is_cpu and x.dtype == torch.bfloat16):
            return super().forward(x)
        x = F.layer_norm(x, self.normalized_shape, eps=self.eps) * self.weight
        return x if self.bias is None else x + self.bias


class Block(nn.Module):
    """One layer: attention, then MLP. Each reads a normalised copy of the residual stream and adds its output to the stream."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.norm_1 = LayerNorm(config.n_embd, bias=config.bias)
        self.attn = CausalSelfAttention(config)
        self.norm_2 = LayerNorm(config.n_embd, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, rotary: Tensor | None = None, cache: KVCache | None = None) -> Tensor:
        x = x + self.attn(self.norm_1(x), rotary, cache)
        return x + self.mlp(self.norm_2(x))


class Blocks(nn.ModuleList):
    """The blocks of a model in their order: a ModuleList whose entries have a type."""

    def __iter__(self) -> Iterator[Block]:
        return (block for block in super().__iter__() if isinstance(block, Block))


class GPT(nn.Module):
    """Token and position embeddings, a stack of blocks, and logits by the token embedding (weight tying).

    For readers of nanoGPT: `model(idx)` returns the logits of all positions, and `model(idx, targets)` returns the loss alone,
    not a pair of the two. `targets` are the ids that follow each of idx; nanoGPT's -1 for "ignore" is not supported.
    """

    def __init__(self, config: GPTConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.token_embedding = Embedding(vocab_size, config.n_embd)
        new_table = POSITIONS[config.positions]
        if new_table is None:
            self.position_embedding = nn.Embedding(config.block_size, config.n_embd)
        self.blocks = Blocks(Block(config) for _ in range(config.n_layer))
        self.norm = LayerNorm(config.n_embd, bias=config.bias)
        rows = min(config.block_size, max(1, TABLE_NUMBERS // config.n_embd))
        self._table: Tensor | None
        self.register_buffer("_table", new_table and new_table(config, rows), persistent=False)
        self._initialise()

    def position_table(self, end: int, *, start: int = 0) -> Tensor:
        """The T positions from `start` up to `end`, which is at most block_size: (T, C) or (2, T, d/2), see POSITIONS."""
        new_table = POSITIONS[self.config.positions]
        if new_table is None or self._table is None:
            return self.position_embedding.weight[start:end]
        if end > self._table.size(-2):
            rows = min(self.config.block_size, max(end, 2 * self._table.size(-2)))
            with torch.inference_mode(False):  # the table must also serve training later
                self._table = new_table(self.config, rows).to(self._table)
        return self._table[..., start:end, :]

    @torch.no_grad()
    def _initialise(self) -> None:
        """Normal weights, zero biases. A matrix that reads the residual stream keeps the variance of its input; one that writes
        to it is as small as GPT-2's, divided by the root of their number, so that every block starts close to the identity.

        With GPT-2's 0.02 everywhere, queries, keys and the MLP must grow first: 1.75 instead of 1.69 for shakespeare-cpu.
        """
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=EMBEDDING_STD)
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=1 / math.sqrt(module.in_features))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for block in self.blocks:
            for projection in (block.attn.proj, block.mlp.down):
                nn.init.normal_(projection.weight, std=INITIAL_STD / math.sqrt(2 * self.config.n_layer))

    def parameter_count(self) -> int:
        """The number of trained parameters, embeddings included."""
        return sum(p.numel() for p in self.parameters())

    def new_cache(self, batch_size: int) -> list[KVCache]:
        """An empty cache for `batch_size` sequences: one KVCache per layer."""
        weight = self.token_embedding.weight
        return [KVCache(batch_size, self.config, device=weight.device, dtype=weight.dtype) for _ in self.blocks]

    def forward(self, idx: Tensor, targets: Tensor | None = None, cache: list[KVCache] | None = None) -> Tensor:
        """The logits (B, T, V) of ids `idx` (B, T), or with `targets` (B, T) the mean loss in nats per character.

        With a `cache` from `new_cache`, idx holds only the new ids, which continue those that the cache has seen.
        Raises ValueError if the sequence is longer than block_size.
        """
        x, rotary = self._embed(idx, start=cache[0].length if cache else 0)
        x = F.dropout(x, self.config.dropout, self.training)
        caches: Sequence[KVCache | None] = cache or [None] * len(self.blocks)
        for block, layer_cache in zip(self.blocks, caches):
            x = block(x, rotary, layer_cache)
        logits = F.linear(self.norm(x), self.token_embedding.weight)  # (B, T, V)
        if targets is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    def _embed(self, idx: Tensor, *, start: int = 0) -> tuple[Tensor, Tensor | None]:
        """The embeddings (B, T, C) of ids `idx` (B, T), which begin at position `start`, and the table if it rotates."""
        end = start + idx.size(1)
        if end > self.config.block_size:
            raise ValueError(f"a sequence of {end} characters does not fit block_size {self.config.block_size}")
        x, table = self.token_embedding(idx), self.position_table(end, start=start)
        return (x + table, None) if table.dim() == 2 else (x, table)

    @torch.no_grad()
    def attention(self, idx: Tensor) -> Tensor:
        """The attention weights (n_layer, B, h, T, T) on ids `idx` (B, T), by the readable reference. Use evaluation mode.

        Entry [layer, b, head, t, s] is how much character t attends to character s. Each row sums to 1, and s > t gives 0.
        Raises ValueError if `reference` computes something else than `forward`: who changes one changes the other.
        """
        weights = []  # of each layer, (B, h, T, T)

        def record(layer: CausalSelfAttention, given: tuple[Tensor, Tensor | None], y: Tensor) -> None:
            again, of_layer = layer.reference(*given[:2])
            if not (again - y).norm() <= ATTENTION_BOUND * y.norm():
                raise ValueError("CausalSelfAttention.reference computes something else than forward; change it alike")
            weights.append(of_layer)

        hooks = [block.attn.register_forward_hook(record) for block in self.blocks]
        try:
            self(idx)
        finally:
            for hook in hooks:
                hook.remove()
        return torch.stack(weights)

    @torch.no_grad()
    def generate(self, idx: Tensor, length: int, *, temperature: float = 1, generator: torch.Generator | None = None) -> Tensor:
        """The slow reference for chargpt/sampling/torch_texts.py: append `length` ids to idx (B, T), each after reading the
        last block_size ids. `temperature` 0 takes the most likely id."""
        for _ in range(length):
            logits = self(idx[:, -self.config.block_size :])[:, -1].float()  # (B, V)
            if temperature == 0:
                new = logits.argmax(dim=-1, keepdim=True)
            else:
                share = (1 - torch.rand(len(idx), 1, dtype=torch.float64, generator=generator)).to(logits)  # above 0
                cumulative = (logits / temperature).softmax(dim=-1).cumsum(dim=-1)
                new = torch.searchsorted(cumulative, share * cumulative[:, -1:])
            idx = torch.cat((idx, new), dim=1)
        return idx
