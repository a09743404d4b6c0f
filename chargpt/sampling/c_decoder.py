"""The decoder that uses decode.c. For a seed it gives the text of the decoder in PyTorch, up to float32's rounding.

Tried and left out because the gain was below a third: speculative decoding from the text so far (at temperature 0.8 a step of
four characters accepts 1.5 and costs 1.3 to 1.6 steps of one), prefetching, also while a thread waits for another.
"""

import contextlib
import ctypes
import functools
import mmap
import time
import weakref
from collections.abc import Callable, Sequence
from ctypes import Array, byref, c_int

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chargpt.device import one_thread
from chargpt.kernels.compiler import Unavailable
from chargpt.kernels.decode import RULES, Rules, Shape, Share, load_kernel, supports
from chargpt.model import GPT, GPTConfig
from chargpt.sampling.decoder import Decoder, Piece
from chargpt.sampling.rules import Sampling, rules_in_use
from chargpt.sampling.stored_weights import PRECISIONS, pack

SMOOTH = 0.02  # seconds: pieces that arrive this close together look like continuous text
MAX_PIECE = 64  # ids in a piece
LARGE_PAGE = 2**21  # bytes


def choose_decoder(
    device: torch.device, config: GPTConfig, *, precision: str = "float32"
) -> tuple[Callable[..., Decoder], str]:
    """The fastest decoder for a model of this shape on `device`, and its name for the user.

    The decoder is for a model whose weights are rounded to `precision`, see `round_weights`.
    """
    if device.type != "cpu" or not supports(config):
        return Decoder, str(device)
    try:
        return functools.partial(CDecoder, kernel=load_kernel(), precision=precision), f"{device} (compiled)"
    except Unavailable as reason:
        return Decoder, f"{device} (not compiled: {reason})"


def _padded(n: int, to: int) -> int:
    return -(-n // to) * to


def _split(n: int, ranks: int, unit: int = 1) -> list[slice]:
    """`n` items divided among the ranks as evenly as possible, in multiples of `unit`."""
    units = -(-n // unit)
    ends = [min(n, unit * (units * rank // ranks)) for rank in range(ranks + 1)]
    return [slice(start, end) for start, end in zip(ends, ends[1:])]


def in_large_pages(size: int) -> Tensor:
    """Memory for `size` bytes, in large pages where Linux has them.

    Reading 42 MB was a third faster in them. A CPU stops reading ahead at the end of a page, and knows the addresses of few.
    """
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(size, dtype=torch.uint8)
    memory = mmap.mmap(-1, _padded(size, LARGE_PAGE) + LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a system without large pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    vector = torch.frombuffer(memory, dtype=torch.uint8)
    return vector[-vector.data_ptr() % LARGE_PAGE :][:size]


class Layout:
    """The weights of a model as decode.c reads them: a vector of bytes for each rank (thread), in the order of use."""

    def __init__(self, model: GPT, ranks: int, *, precision: str, kernel: ctypes.CDLL) -> None:
        self._precision = precision
        sizes = ("decoder_panel", "decoder_lanes", "decoder_step")
        self.panel, self._lanes, self._step = (c_int.in_dll(kernel, name).value for name in sizes)
        vocab_size, C = model.token_embedding.weight.shape
        self.heads = _split(model.config.n_head, ranks)
        self.hidden = _split(4 * C, ranks, self.panel)
        self.ids = _split(vocab_size, ranks, self.panel)
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
        hidden, ids, first = self.hidden[rank], self.ids[rank], rank == 0
        parts = []
        for block in model.blocks:
            attn, mlp = block.attn, block.mlp
            qkv = torch.arange(3 * C).view(3, C)[:, own].flatten()
            parts += [self._norm(block.norm_1), self._matrix(attn.qkv.weight, attn.qkv.bias, outputs=qkv)]
            # The ranks' outputs are summed, so only the first one adds the bias.
            parts += [self._matrix(attn.proj.weight, attn.proj.bias if first else None, inputs=own)]
            parts += [self._norm(block.norm_2), self._matrix(mlp.up.weight, mlp.up.bias, outputs=hidden)]
            parts += [self._matrix(mlp.down.weight, mlp.down.bias if first else None, inputs=hidden)]
        parts += [self._norm(model.norm), self._matrix(model.token_embedding.weight, None, outputs=ids)]
        return torch.cat(parts, out=in_large_pages(sum(map(len, parts))))

    def _norm(self, norm: nn.LayerNorm) -> Tensor:
        bias = torch.zeros_like(norm.weight) if norm.bias is None else norm.bias
        pad = _padded(len(bias), self.panel) - len(bias)
        return F.pad(torch.stack((norm.weight, bias)), (0, pad)).flatten().view(torch.uint8)

    def _matrix(
        self, weight: Tensor, bias: Tensor | None, *, outputs: Tensor | slice = slice(None), inputs: slice = slice(None)
    ) -> Tensor:
        """Panels of `outputs` of a weight (N, K): the weights of `inputs`, input by input, then the biases, then any scales."""
        numbers, scales = pack(weight, self._precision)
        numbers = numbers[outputs, inputs]
        N, K = numbers.shape
        pad = _padded(N, self.panel) - N
        numbers = F.pad(numbers, (0, _padded(K, self._step) - K, 0, pad))  # a rank may have no inputs, K = 0
        panels = [self._words(numbers.unflatten(0, ((N + pad) // self.panel, self.panel)).transpose(1, 2))]
        bias = weight.new_zeros(N) if bias is None else bias[outputs]
        for row in [bias] if scales is None else [bias, scales[outputs]]:
            panels.append(F.pad(row, (0, pad)).view(-1, self.panel))
        return torch.cat([panel.flatten(1).contiguous().view(torch.uint8) for panel in panels], dim=1).flatten()

    def _words(self, numbers: Tensor) -> Tensor:
        """The numbers of several vectors, lane by lane, in words of 32 bits, the first one in the lowest bits."""
        if numbers.dtype == torch.float32:
            return numbers
        bits = 8 * numbers.element_size()
        integers = numbers.view(torch.int16 if bits == 16 else torch.int8).int() & (2**bits - 1)
        vectors = integers.unflatten(-1, (-1, 32 // bits, self._lanes))
        shifts = bits * torch.arange(32 // bits, dtype=torch.int32).unsqueeze(1)
        return (vectors << shifts).sum(dim=-2, dtype=torch.int32)


class CDecoder(Decoder):
    """The decoder in C: `kernel` computes and samples many characters in a call. The model is on the CPU, in float32.

    Its weights, if they are rounded to `precision` (see `round_weights`), are stored and read in as few bytes.
    """

    def __init__(
        self, model: GPT, batch_size: int, *, overflow: str = "refill", kernel: ctypes.CDLL, precision: str = "float32"
    ) -> None:
        super().__init__(model, batch_size, overflow=overflow)
        config, tokens = model.config, model.token_embedding.weight.contiguous()
        assert tokens.is_cpu and tokens.dtype == torch.float32, (tokens.device, tokens.dtype)
        assert supports(config), config
        ranks = min(torch.get_num_threads(), config.n_head)
        with one_thread():
            table = model.position_table(config.block_size).contiguous()
            layout = Layout(model, ranks, precision=precision, kernel=kernel)
        self._kernel = kernel
        self._logits = torch.zeros(batch_size, _padded(len(tokens), layout.panel))
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
            PRECISIONS.index(precision),
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
        if penalty is not None or not rules_in_use(sampling) <= RULES:
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
        uniform = None
        if sampling.temperature > 0:
            uniform = torch.empty(steps, len(ids), dtype=torch.float64)
            for text, generator in zip(uniform.unbind(dim=1), generators):
                text.uniform_(generator=generator)  # the numbers that `steps` draws of one row would take
        mask = torch.zeros(V, dtype=torch.uint8).index_fill_(0, forbidden, 1)
        temperature = max(sampling.temperature, 1e-30) if sampling.temperature else 0.0
        rules = Rules(temperature, sampling.top_p, sampling.min_p, min(sampling.top_k, V), mask.data_ptr())
        piece = Piece(torch.empty(steps, len(ids), dtype=torch.long), torch.empty(steps, len(ids)))
        self._run(rules, start, ids, uniform, piece)
        return piece

    def _run(self, rules: Rules, start: int, ids: Tensor, uniform: Tensor | None = None, piece: Piece | None = None) -> None:
        ids = ids.contiguous()
        chosen, log_probabilities = (tensor.data_ptr() for tensor in piece) if piece else (None, None)
        failed = self._kernel.decoder_run(
            self._decoder,
            byref(rules),
            start,
            ids.size(1),
            ids.data_ptr(),
            len(piece.ids) if piece else 0,
            None if uniform is None else uniform.data_ptr(),
            chosen,
            log_probabilities,
        )
        if failed:
            raise MemoryError(f"{len(ids)} texts at once: not enough memory for their keys and values; ask for fewer")
