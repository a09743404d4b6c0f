"""A character-level GPT: GPT-2's architecture in one file that imports torch and nothing else.

The letters in shape comments:
    B  batch, independent sequences           h  attention heads (n_head)
    T  time, characters in a sequence         d  head size (n_embd / n_head)
    C  channels, the model's width (n_embd)   V  vocabulary size
    S  characters attended to: T, plus what the cache already holds
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

POSITIONS = ("learned", "sinusoidal", "rotary")
INITIAL_STD = 0.02  # GPT-2's standard deviation for every weight matrix; here, of those that write to the stream
EMBEDDING_STD = 2 * INITIAL_STD

# The paper multiplies embeddings by sqrt(n_embd) so that sinusoids, of size 1, do not drown them. Shrinking the sinusoids
# instead gives the same balance, and the table is then a GPT-2 position embedding like any other and exports as one. Their
# root mean square, 0.08, is where learned position embeddings end up: token embeddings grow to about 0.14 in training, and
# at 0.02 the sinusoids would drown.
SINUSOID_SCALE = 2 * EMBEDDING_STD * math.sqrt(2)


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """The shape of a GPT. Raises ValueError, beginning with the field's name, for a shape that cannot be built."""

    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 128
    block_size: int = 128
    dropout: float = 0.0
    bias: bool = False
    positions: str = "learned"

    def __post_init__(self) -> None:
        for name in ("n_layer", "n_head", "n_embd", "block_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} given; use a whole number of 1 or more")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout: {self.dropout} given; use a number from 0 up to, not including, 1")
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd: {self.n_embd} does not divide into n_head {self.n_head} heads; use a multiple of n_head")
        if self.positions not in POSITIONS:
            raise ValueError(f"positions: {self.positions!r} given; use one of {', '.join(POSITIONS)}")
        if self.positions == "rotary" and self.n_embd // self.n_head % 2:
            raise ValueError(f"n_embd: rotary positions turn pairs, so the head size {self.n_embd // self.n_head} must be even")


class KVCache:
    """Keys and values of one layer, for generating a character at a time.

    Attention hands in what is new and gets back everything up to now; it does not know what the cache is for.
    """

    def __init__(self, batch_size: int, config: GPTConfig, *, device: torch.device, dtype: torch.dtype) -> None:
        shape = (batch_size, config.n_head, config.block_size, config.n_embd // config.n_head)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.length = 0

    def update(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append k and v (B, h, T, d); return all keys and values so far, (B, h, S, d) each."""
        end = self.length + k.size(2)
        if end > self.keys.size(2):
            raise ValueError(f"the cache holds {self.keys.size(2)} characters and was asked for {end}")
        self.keys[:, :, self.length : end] = k
        self.values[:, :, self.length : end] = v
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]


def reference_attention(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None = None, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """Attention as the paper writes it: softmax(q k^T * scale) v. Slow and readable; the fast path is tested against it.

    q is (B, h, T, d); k and v are (B, h, S, d). `mask` is True where a query may look, (B, 1, T, S) or (B, T, S);
    None lets every query see every key. `scale` defaults to 1/sqrt(d). Returns the output (B, h, T, d) and the
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
    """The fast path: `reference_attention` under a causal mask, with whatever this device does quickest."""
    T, S, shape = q.size(2), k.size(2), q.shape
    if q.is_cpu and q.dtype == torch.bfloat16:
        # torch's fused CPU kernel needs five times as long for the backward pass in bfloat16.
        hidden = torch.full((T, S), float("-inf"), dtype=q.dtype).triu(S - T + 1)
        q, k, v = (x.reshape(-1, *x.shape[2:]) for x in (q, k, v))  # (B * h, ., d)
        scores = torch.baddbmm(hidden, q, k.transpose(1, 2), alpha=1.0 / math.sqrt(q.size(-1)))  # (B * h, T, S)
        return torch.bmm(scores.softmax(dim=-1), v).view(shape)
    mask = causal_mask(T, S, device=q.device) if 1 < T < S else None
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=T == S and T > 1)


def causal_mask(T: int, S: int | None = None, *, device: torch.device | None = None) -> Tensor:
    """True where one of the last T of S characters may look: at itself and everything before it, (T, S)."""
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


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Turn each pair (x[i], x[i + d/2]) of queries or keys (B, h, T, d) by its position's angle; table (2, T, d/2)."""
    cos, sin = table.to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class CausalSelfAttention(nn.Module):
    """Multi-head causal self-attention with one fused projection for queries, keys and values.

    Dropout is on what it adds to the stream, and not on its weights as in GPT-2, which takes as long as the rest of a step on
    a CPU.

    `fused`, if the program has one, is a faster equal of what stands here between the projections: a function of qkv
    (B, T, 3 C), n_head and the rotary table. It knows no caches.
    """

    fused = None

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
            q, k, v = self.heads(x, rotary)
            if cache is not None:
                k, v = cache.update(k, v)
            y = causal_attention(q, k, v).transpose(1, 2).reshape(B, T, C)
        return F.dropout(self.proj(y), self.dropout, self.training)


class MLP(nn.Module):
    """The position-wise feed-forward part: four times the width, GELU, back again.

    GELU itself, with the error function, and not GPT-2's approximation by tanh: the two differ by less than 0.0005, but
    on a CPU torch takes five times as long for the second. Exports name it (`gelu` in transformers).
    """

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.down = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)
        self.dropout = config.dropout

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.down(F.gelu(self.up(x))), self.dropout, self.training)


class Embedding(nn.Embedding):
    """torch's, but for its gradient in bfloat16 on a CPU, which torch adds up in bfloat16 too, however large the batch."""

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
    """One layer: attention, then MLP, each reading a normalised copy of the stream and adding to it."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.norm_1 = LayerNorm(config.n_embd, bias=config.bias)
        self.attn = CausalSelfAttention(config)
        self.norm_2 = LayerNorm(config.n_embd, bias=config.bias)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, rotary: Tensor | None = None, cache: KVCache | None = None) -> Tensor:
        x = x + self.attn(self.norm_1(x), rotary, cache)
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    """Token and position embeddings, a stack of blocks, and logits read off the token embedding itself."""

    def __init__(self, config: GPTConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.token_embedding = Embedding(vocab_size, config.n_embd)
        if config.positions == "learned":
            self.position_embedding = nn.Embedding(config.block_size, config.n_embd)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = LayerNorm(config.n_embd, bias=config.bias)
        self.register_buffer("position_table", self._position_table(), persistent=False)
        self._initialise()

    def _position_table(self) -> Tensor | None:
        """The fixed table of sinusoidal or rotary positions; None when positions are learned."""
        config = self.config
        if config.positions == "sinusoidal":
            return sinusoids(config.block_size, config.n_embd) * SINUSOID_SCALE
        if config.positions == "rotary":
            return rotary_table(config.block_size, config.n_embd // config.n_head)
        return None

    @torch.no_grad()
    def _initialise(self) -> None:
        """Normal weights, zero biases. What reads the stream gives out as much as it takes in; what writes to it begins as
        small as GPT-2's, shrunk by the depth of the stream, so that every block begins as nearly nothing.

        With GPT-2's 0.02 everywhere, queries, keys and the MLP would have to grow first: 1.75 instead of 1.69 at the shape of
        shakespeare-cpu.
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
        """Every trained number, embeddings included."""
        return sum(p.numel() for p in self.parameters())

    def new_cache(self, batch_size: int) -> list[KVCache]:
        """An empty cache for `batch_size` sequences: one KVCache a layer."""
        weight = self.token_embedding.weight
        return [KVCache(batch_size, self.config, device=weight.device, dtype=weight.dtype) for _ in self.blocks]

    def forward(self, idx: Tensor, targets: Tensor | None = None, cache: list[KVCache] | None = None) -> Tensor:
        """Without `targets`, the logits (B, T, V) of ids `idx` (B, T); with them, the mean loss in nats per character.

        With a `cache` from `new_cache`, idx holds only what is new and continues what the cache has seen.
        Raises ValueError when the sequence outgrows block_size.
        """
        B, T = idx.shape
        start = cache[0].length if cache else 0
        if start + T > self.config.block_size:
            raise ValueError(f"a sequence of {start + T} characters does not fit block_size {self.config.block_size}")
        x = self.token_embedding(idx)  # (B, T, C)
        rotary = None
        if self.config.positions == "learned":
            x = x + self.position_embedding.weight[start : start + T]
        elif self.config.positions == "sinusoidal":
            x = x + self.position_table[start : start + T]
        else:
            rotary = self.position_table[:, start : start + T]
        x = F.dropout(x, self.config.dropout, self.training)
        for block, layer_cache in zip(self.blocks, cache or [None] * len(self.blocks)):
            x = block(x, rotary, layer_cache)
        logits = F.linear(self.norm(x), self.token_embedding.weight)  # (B, T, V)
        if targets is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    @torch.no_grad()
    def generate(
        self, idx: Tensor, length: int, *, temperature: float = 1.0, generator: torch.Generator | None = None
    ) -> Tensor:
        """The plain, slow reference: append `length` ids to idx (B, T), reading the last block_size ids each time.

        `temperature` 0 takes the likeliest id. chargpt/generate.py does the same, faster.
        """
        for _ in range(length):
            logits = self(idx[:, -self.config.block_size :])[:, -1].float()  # (B, V)
            if temperature == 0:
                new = logits.argmax(dim=-1, keepdim=True)
            else:
                new = torch.multinomial((logits / temperature).softmax(dim=-1), 1, generator=generator)
            idx = torch.cat((idx, new), dim=1)
        return idx
