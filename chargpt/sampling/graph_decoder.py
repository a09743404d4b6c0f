"""The decoder for a GPU: a static cache, and one CUDA graph for each character. Same seed, same text as by decoder.py.

A character is some 70 to 100 small kernels, which a GPU computes faster than the host can launch them. Here the host starts one
graph for a character, and reads the ids in pieces.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from chargpt.device import sent
from chargpt.graphs import Graphs
from chargpt.model import GPT
from chargpt.sampling.decoder import Decoder, Piece
from chargpt.sampling.rules import NEVER, Sampling, distribution, kept

# Characters that are written before the host reads them.
AT_ONCE = 64
# Parameters below which the C engine of the CPU writes one text faster than a GPU. It reads some 28 billion parameters a second
# on two cores (README); a graph of 66 to 90 kernels of 2.5 microseconds each, an estimate, takes 0.17 to 0.23 ms.
FASTER_IN_C = 5e6


class GraphDecoder(Decoder):
    """A model on a GPU and the state of B growing texts. On another device it computes the same, without graphs."""

    def __init__(self, model: GPT, batch_size: int, *, overflow: str = "refill") -> None:
        super().__init__(model, batch_size, overflow=overflow)
        config, device = model.config, model.token_embedding.weight.device
        whole = (config.n_layer, batch_size, config.n_head, config.block_size, config.n_embd // config.n_head)
        self._keys, self._values = torch.zeros(2, *whole, dtype=model.token_embedding.weight.dtype, device=device)
        self._table = model.position_table(config.block_size).detach()
        self._places = torch.arange(config.block_size, device=device)
        self._never = torch.zeros(model.vocab_size, device=device)  # added to the logits
        self._new = torch.zeros(batch_size, 1, dtype=torch.long, device=device)
        self._uniform = torch.zeros(
            AT_ONCE, batch_size, 1, dtype=torch.float64, device="cpu" if device.type == "mps" else device
        )
        self._ids = torch.zeros(AT_ONCE, batch_size, dtype=torch.long, device=device)
        self._log_probabilities = torch.zeros(AT_ONCE, batch_size, device=device)
        self._position, self._number = torch.zeros(2, 1, dtype=torch.long, device=device)  # of a character: in the window, here
        self._graphs = Graphs(device)
        self._is_read = False  # whether the static cache has what the window holds

    def write(
        self,
        new: Tensor,
        limit: int,
        sampling: Sampling,
        *,
        generators: Sequence[torch.Generator],
        forbidden: Tensor,
        penalty: Tensor | None = None,
    ) -> Piece:
        room = self.model.config.block_size - self.length
        if penalty is not None or new.size(1) > 1 or not room or self.length == 0:
            self._is_read = False
            return super().write(new, limit, sampling, generators=generators, forbidden=forbidden, penalty=penalty)
        if not self._is_read:
            for layer, cache in enumerate(self.cache):
                self._keys[layer, :, :, : self.length] = cache.keys[:, :, : self.length]
                self._values[layer, :, :, : self.length] = cache.values[:, :, : self.length]
            self._never.zero_().index_fill_(0, forbidden, NEVER)
            self._is_read = True
        count = min(limit, room, AT_ONCE)
        if sampling.temperature:
            numbers = [torch.rand(count, dtype=torch.float64, generator=generator) for generator in generators]
            self._uniform[:count, :, 0].copy_(sent(torch.stack(numbers, dim=1), self._uniform.device))
        self._new.copy_(new)
        self._position.fill_(self.length)
        self._number.zero_()
        for _ in range(count):
            self._graphs.run(f"{sampling}", lambda: self._character(sampling))
        piece = Piece(self._ids[:count].clone(), self._log_probabilities[:count].clone())
        self.length += count
        self.window = torch.cat((self.window, new, piece.ids[:-1].T), dim=1)[:, -self.model.config.block_size :]
        return piece

    def _character(self, sampling: Sampling) -> None:
        """Read the new ids at the position, choose the ids that follow, and move on."""
        model, visible, rotary = self.model, (self._places <= self._position)[None], None
        x = model.token_embedding(self._new)  # (B, 1, C)
        if model.config.positions == "rotary":
            rotary = self._table.index_select(1, self._position)
        else:
            x = x + self._table.index_select(0, self._position)
        for block, keys, values in zip(model.blocks, self._keys, self._values):
            q, k, v = block.attn.heads(block.norm_1(x), rotary)  # (B, h, 1, d)
            keys.index_copy_(2, self._position, k)
            values.index_copy_(2, self._position, v)
            y = F.scaled_dot_product_attention(q, keys, values, attn_mask=visible)
            x = x + block.attn.proj(y.transpose(1, 2).reshape(x.shape))
            x = x + block.mlp(block.norm_2(x))
        logits = F.linear(model.norm(x), model.token_embedding.weight)[:, -1].float()  # (B, V)
        ids = self._chosen(logits + self._never, sampling)
        self._log_probabilities.index_copy_(0, self._number, logits.log_softmax(dim=-1).gather(-1, ids).T)
        self._ids.index_copy_(0, self._number, ids.T)
        self._new.copy_(ids)
        self._position += 1
        self._number += 1

    def _chosen(self, logits: Tensor, sampling: Sampling) -> Tensor:
        """As `rules.choose`, (B, 1), with the random numbers that are on the device."""
        if sampling.temperature == 0:
            return kept(logits, sampling).argmax(dim=-1, keepdim=True)
        cumulative = distribution(logits, sampling).to(self._uniform.device, self._uniform.dtype).cumsum(dim=-1)
        uniform = self._uniform.index_select(0, self._number.to(self._uniform.device))[0]  # (B, 1)
        return (cumulative < (1 - uniform) * cumulative[:, -1:]).sum(dim=-1, keepdim=True).to(logits.device)
