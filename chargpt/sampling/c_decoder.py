"""The decoder that uses decode.c. For a seed it gives the text of the decoder in PyTorch, up to ties within float32's rounding.

Tried and left out because the gain was below a third: speculative decoding from the text so far (at temperature 0.8 a step of
four characters accepts 1.5 and costs 1.3 to 1.6 steps of one), prefetching, large pages.
"""

import ctypes
import functools
import time
import weakref
from collections.abc import Callable, Sequence
from ctypes import Array, byref, c_int

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chargpt.kernels.compiler import Unavailable
from chargpt.kernels.decode import Rules, Shape, Share, load_kernel, supports
from chargpt.sampling.decoder import Decoder, Piece
from chargpt.sampling.rules import Sampling
from model import GPT, GPTConfig

SMOOTH = 0.02  # seconds: pieces that arrive this close together look like continuous text
MAX_PIECE = 64  # ids in a piece


def choose_decoder(device: torch.device, config: GPTConfig) -> tuple[Callable[..., Decoder], str]:
    """The fastest decoder for a model of this shape on `device`, and its name for the user."""
    if device.type != "cpu" or not supports(config):
        return Decoder, str(device)
    try:
        return functools.partial(CDecoder, kernel=load_kernel()), f"{device} (compiled)"
    except Unavailable as reason:
        return Decoder, f"{device} (not compiled: {reason})"


def _padded(n: int, to: int) -> int:
    return -(-n // to) * to


def _split(n: int, ranks: int, unit: int = 1) -> list[slice]:
    """`n` items divided among the ranks as evenly as possible, in multiples of `unit`."""
    units = -(-n // unit)
    ends = [min(n, unit * (units * rank // ranks)) for rank in range(ranks + 1)]
    return [slice(start, end) for start, end in zip(ends, ends[1:])]


class Layout:
    """The weights of a model as decode.c reads them: a vector for each rank (thread), in the order of use."""

    def __init__(self, model: GPT, ranks: int, *, panel: int, step: int) -> None:
        self._panel, self._step = panel, step
        vocab_size, C = model.token_embedding.weight.shape
        self.heads = _split(model.config.n_head, ranks)
        self.hidden = _split(4 * C, ranks, panel)
        self.ids = _split(vocab_size, ranks, panel)
        self.vectors = [self._vector(model, rank) for rank in range(ranks)]

    def shares(self) -> Array:
        """Each rank's part of the model. It points into the vectors."""
        columns = zip(self.heads, self.hidden, self.ids, self.vectors)
        shares = [
            Share(heads.stop - heads.start, hidden.stop - hidden.start, ids.start, ids.stop - ids.start, vector.data_ptr())
            for heads, hidden, ids, vector in columns
        ]
        return (Share * len(shares))(*shares)

    def _vector(self, model: GPT, rank: int) -> Tensor:
        C, d = model.config.n_embd, model.config.n_embd // model.config.n_head
        own = slice(self.heads[rank].start * d, self.heads[rank].stop * d)
        hidden, first = self.hidden[rank], rank == 0  # where the ranks' outputs are summed, only the first has the bias
        parts = []
        for block in model.blocks:
            attn, mlp = block.attn, block.mlp
            qkv = torch.arange(3 * C).view(3, C)[:, own].flatten()
            parts += [self._norm(block.norm_1), self._matrix(attn.qkv.weight[qkv], attn.qkv.bias, qkv)]
            parts += [self._matrix(attn.proj.weight[:, own], attn.proj.bias if first else None)]
            parts += [self._norm(block.norm_2), self._matrix(mlp.up.weight[hidden], mlp.up.bias, hidden)]
            parts += [self._matrix(mlp.down.weight[:, hidden], mlp.down.bias if first else None)]
        parts += [self._norm(model.norm), self._matrix(model.token_embedding.weight[self.ids[rank]], None)]
        return torch.cat(parts)

    def _norm(self, norm: nn.LayerNorm) -> Tensor:
        bias = torch.zeros_like(norm.weight) if norm.bias is None else norm.bias
        pad = _padded(len(bias), self._panel) - len(bias)
        return F.pad(torch.stack((norm.weight, bias)), (0, pad)).flatten()

    def _matrix(self, weight: Tensor, bias: Tensor | None, rows: Tensor | slice = slice(None)) -> Tensor:
        """Panels of outputs, each with its weights, input by input, and then its biases; weight (N, K), `rows` of bias."""
        N, K = weight.shape
        padded = weight.new_zeros(_padded(N, self._panel), _padded(K, self._step) + 1)
        padded[:N, :K] = weight
        if bias is not None:
            padded[:N, -1] = bias[rows]
        return padded.view(-1, self._panel, padded.size(1)).transpose(1, 2).flatten()


class CDecoder(Decoder):
    """The decoder in C: `kernel` computes and samples many characters in a call. The model is on the CPU, in float32."""

    def __init__(self, model: GPT, batch_size: int, *, overflow: str = "exact", kernel: ctypes.CDLL) -> None:
        super().__init__(model, batch_size, overflow=overflow)
        config, tokens = model.config, model.token_embedding.weight.contiguous()
        assert tokens.is_cpu and tokens.dtype == torch.float32, (tokens.device, tokens.dtype)
        assert supports(config), config
        table = model.position_table(config.block_size).contiguous()
        ranks = min(torch.get_num_threads(), config.n_head)
        panel, step = (c_int.in_dll(kernel, name).value for name in ("decoder_panel", "decoder_step"))
        layout = Layout(model, ranks, panel=panel, step=step)
        self._kernel = kernel
        self._logits = torch.zeros(batch_size, _padded(len(tokens), panel))
        self._steps = 4  # ids in the next piece
        self._used_by_kernel = (layout, tokens, table)
        shape = Shape(
            config.n_layer,
            config.n_head,
            config.n_embd,
            config.block_size,
            len(tokens),
            batch_size,
            ranks,
            tokens=tokens.data_ptr(),
            logits=self._logits.data_ptr(),
            **{"rotary" if config.positions == "rotary" else "positions": table.data_ptr()},
        )
        self._decoder = kernel.decoder_new(byref(shape), layout.shares())
        if not self._decoder:
            raise MemoryError(f"{batch_size} texts at once: no memory, or no more threads allowed; ask for fewer")
        weakref.finalize(self, kernel.decoder_free, self._decoder)

    def read(self, new: Tensor) -> Tensor:
        start, ids = self.place(new)
        self._run(Rules(), start, ids)
        return self._logits[:, : self.model.token_embedding.num_embeddings].clone()

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
        if penalty is not None:
            return super().write(new, limit, sampling, generators=generators, forbidden=forbidden, penalty=penalty)
        started = time.perf_counter()
        start, ids = self.place(new)
        steps = min(limit, self._steps, self.model.config.block_size - self.length + 1)
        piece = self._continue(start, ids, steps, sampling, generators, forbidden)
        read = piece.ids[:-1].T  # the last ids are not in the cache yet
        self.window = torch.cat((self.window, read), dim=1)
        self.length += read.size(1)
        if time.perf_counter() - started < SMOOTH / 2:
            self._steps = min(2 * self._steps, MAX_PIECE)
        else:
            self._steps = max(1, self._steps // 2)
        return piece

    def _continue(
        self, start: int, ids: Tensor, steps: int, sampling: Sampling, generators: Sequence[torch.Generator], forbidden: Tensor
    ) -> Piece:
        """Read `ids` (B, T) at positions from `start`, and choose `steps` more."""
        V = self.model.token_embedding.num_embeddings
        noise = None
        if sampling.temperature > 0:
            noise = torch.empty(steps, len(ids), V)
            for text, generator in zip(noise.unbind(dim=1), generators):
                text.exponential_(generator=generator)  # the numbers that `steps` draws of one row would take
        mask = torch.zeros(V, dtype=torch.uint8).index_fill_(0, forbidden, 1)
        temperature = max(sampling.temperature, 1e-30) if sampling.temperature else 0.0
        rules = Rules(temperature, sampling.top_p, sampling.min_p, min(sampling.top_k, V), mask.data_ptr())
        piece = Piece(torch.empty(steps, len(ids), dtype=torch.long), torch.empty(steps, len(ids)))
        self._run(rules, start, ids, noise, piece)
        return piece

    def _run(self, rules: Rules, start: int, ids: Tensor, noise: Tensor | None = None, piece: Piece | None = None) -> None:
        ids = ids.contiguous()
        chosen, log_probabilities = (tensor.data_ptr() for tensor in piece) if piece else (None, None)
        failed = self._kernel.decoder_run(
            self._decoder,
            byref(rules),
            start,
            ids.size(1),
            ids.data_ptr(),
            len(piece.ids) if piece else 0,
            None if noise is None else noise.data_ptr(),
            chosen,
            log_probabilities,
        )
        if failed:
            raise MemoryError(f"{len(ids)} texts at once: not enough memory for their keys and values; ask for fewer")
