"""The engine in PyTorch: for every device, and for a CPU without a C compiler.

A character is 80 to 200 small kernels, which a CUDA GPU computes faster than the host can launch them. There, the host
starts one graph for each character, and reads the ids in pieces.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from chargpt.device import memory_free, send
from chargpt.gpu import heads
from chargpt.graphs import Graphs
from chargpt.model import GPT, KVCache
from chargpt.sampling.rules import NEVER
from chargpt.sampling.writer import Choice, NewIds, Texts, Writer
from chargpt.standard import has_exact_cache, is_standard

AT_ONCE = 64  # characters that a GPU writes before the host reads them
# Texts that a GPU writes at once, at most: it takes as long for few; and the part of its free memory for their keys and values.
TEXTS_AT_ONCE, SHARE_FOR_TEXTS = 256, 1 / 4


def torch_writer(model: GPT) -> Writer:
    """What writes with `model`, which is in evaluation mode."""
    config, weight = model.config, model.token_embedding.weight
    writer = Writer(partial(TorchTexts, model), config.block_size)
    if weight.device.type != "cuda":
        return writer
    of_text = 2 * config.n_layer * config.n_embd * config.block_size * weight.element_size()  # keys and values
    fit = int(SHARE_FOR_TEXTS * (memory_free(weight.device) or 0)) // of_text
    return replace(writer, at_once=max(1, min(TEXTS_AT_ONCE, fit)))


def _scale(logits: Tensor, temperature: float) -> Tensor:
    if temperature == 0:
        return torch.full_like(logits, NEVER).scatter(-1, logits.argmax(dim=-1, keepdim=True), 0)
    return (logits - logits.amax(dim=-1, keepdim=True)) / temperature


def _keep_top_p(logits: Tensor, p: float) -> Tensor:
    order = logits.argsort(dim=-1, descending=True, stable=True)
    before = F.pad(logits.softmax(dim=-1).gather(-1, order).cumsum(dim=-1)[:, :-1], (1, 0))
    return logits.masked_fill(torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, before >= p), NEVER)


def _keep_min_p(logits: Tensor, share: float) -> Tensor:
    probs = logits.softmax(dim=-1)
    return logits.masked_fill(probs < share * probs.amax(dim=-1, keepdim=True), NEVER)


# Those of rules.py that a graph contains, with logits (B, V) on the device. Others are computed on the host.
RULES: Mapping[str, Callable[[Tensor, float], Tensor]] = {
    "temperature": _scale,
    "top_k": lambda logits, k: logits.masked_fill(logits < logits.topk(min(int(k), logits.size(-1))).values[:, -1:], NEVER),
    "top_p": _keep_top_p,
    "min_p": _keep_min_p,
}


class TorchTexts(Texts):
    """Texts in a cache of the model, or in none: then all of them is read again for each character."""

    def __init__(self, model: GPT, texts: int, *, chooses: bool | None = None) -> None:
        """`chooses` is whether the device applies the sampling rules and draws; None: if it is a CUDA GPU. What it then
        computes is the standard model."""
        self._model, self._device = model, next(model.parameters()).device
        self._cache = model.new_cache(texts) if has_exact_cache(model.config) else None
        self._read = torch.zeros(texts, model.config.block_size, dtype=torch.long, device=self._device)  # without a cache
        on_gpu = self._device.type == "cuda" if chooses is None else chooses
        self._chooses = on_gpu and self._cache is not None and is_standard(model.config)
        if self._chooses:  # in memory that stays where it is
            zeros = partial(torch.zeros, device=self._device)
            self._graphs, self._table, self._mask = Graphs(self._device), Tensor(), Tensor()
            self._new, self._never = zeros(texts, 1, dtype=torch.long), zeros(model.vocab_size)  # the latter is added to logits
            self._place, self._number = zeros(2, 1, dtype=torch.long)  # of a character: in the context, and in a piece
            self._shares = zeros(AT_ONCE, texts, dtype=torch.float64)
            self._chosen = zeros(AT_ONCE, 2, texts, dtype=torch.float64)  # ids and their log-probabilities

    def read(self, start: int, ids: np.ndarray) -> np.ndarray:
        return self.logits(start, torch.from_numpy(np.ascontiguousarray(ids)).to(self._device)).float().cpu().numpy()

    @torch.inference_mode()
    def logits(self, start: int, ids: Tensor) -> Tensor:
        """Those of the next character, (B, V), after `ids` (B, T) at positions from `start`."""
        if self._cache is None:
            end = start + ids.size(1)
            self._read[:, start:end] = ids
            return self._model(self._read[:, :end])[:, -1]
        for cache in self._cache:
            cache.length = start
        return self._model(ids, cache=self._cache)[:, -1]

    @torch.inference_mode()
    def write(self, start: int, texts: np.ndarray, count: int, limit: int, choice: Choice) -> NewIds:
        if not self._chooses or not choice.rules.keys() <= RULES.keys():
            return super().write(start, texts, count, limit, choice)
        ids = send(torch.from_numpy(np.ascontiguousarray(texts[:, -count:])), self._device)
        if count > 1:
            self.logits(start, ids[:, :-1])
        first, steps = start + count - 1, min(limit, AT_ONCE)
        assert self._cache is not None
        if first + limit > self._mask.size(-1):
            for cache in self._cache:
                cache.reserve(first + limit)
            self._mask = cache.keys.new_empty(1, cache.keys.size(2))  # 0 at the places that are read, (1, S)
            self._table = self._model.position_table(self._mask.size(-1))
        self._mask.fill_(NEVER)[:, :first] = 0
        never = np.zeros(self._model.vocab_size, np.float32)
        never[choice.forbidden] = NEVER
        self._never.copy_(send(torch.from_numpy(never), self._device))
        self._shares[:steps] = send(torch.from_numpy(1 - choice.uniform(steps)), self._device)
        self._new.copy_(ids[:, -1:])
        self._place.fill_(first)
        self._number.zero_()
        for _ in range(steps):
            self._graphs.run(f"{self._mask.size(-1)} {choice.rules}", partial(self._write_one, choice.rules))
        made, log_probabilities = self._chosen[:steps].cpu().numpy().swapaxes(0, 1)
        return NewIds(made.astype(np.int64), log_probabilities.astype(np.float32))

    def _write_one(self, rules: Mapping[str, float]) -> None:
        """Read the new ids at their place, choose the ids that follow, and move on."""
        assert self._cache is not None
        model, row = self._model, self._table.index_select(-2, self._place)
        self._mask.index_fill_(-1, self._place, 0)
        x = model.token_embedding(self._new)  # (B, 1, C)
        x, rotary = (x + row, None) if row.dim() == 2 else (x, row)
        for block, cache in zip(model.blocks, self._cache):
            x = x + block.attn.proj(self._attend(cache, block.attn.qkv(block.norm_1(x)), rotary))
            x = x + block.mlp(block.norm_2(x))
        logits = F.linear(model.norm(x), model.token_embedding.weight)[:, -1].float()
        allowed = logits + self._never
        for name, value in rules.items():
            allowed = RULES[name](allowed, value)
        cumulative = allowed.softmax(dim=-1).double().cumsum(dim=-1)
        share = self._shares.index_select(0, self._number).T * cumulative[:, -1:]  # as `draw` of rules.py
        ids = (cumulative < share).sum(dim=-1, keepdim=True)
        log_probabilities = logits.log_softmax(dim=-1).gather(-1, ids)
        self._chosen.index_copy_(0, self._number, torch.cat((ids, log_probabilities), dim=1).double().T[None])
        self._new.copy_(ids)
        self._place += 1
        self._number += 1

    def _attend(self, cache: KVCache, qkv: Tensor, rotary: Tensor | None) -> Tensor:
        """The attention of a character at its place, (B, 1, C); its key and value go into the cache."""
        q, k, v = heads(qkv, self._model.config.n_head, rotary)
        cache.keys.index_copy_(2, self._place, k)
        cache.values.index_copy_(2, self._place, v)
        return F.scaled_dot_product_attention(q, cache.keys, cache.values, attn_mask=self._mask).transpose(1, 2).flatten(2)
