"""The engine in C, for a CPU: texts that decode.c reads and continues, and the weights as it reads them. Without torch.

Weights are stored in float32, bfloat16, or int8 with a scale for each row. Only the matrices are: those of the linear layers
and the token embedding. Norms, biases and positions stay in float32, and so does all arithmetic. A stored matrix stands for a
rounded one, which every engine computes with.
"""

import ctypes
import functools
import math
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from ctypes import POINTER, Structure, byref, c_double, c_float, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any, get_args

import numpy as np

from chargpt.config import ModelConfig
from chargpt.kernels.compiler import DECODE, Unavailable, declare, load
from chargpt.option_table import check, entries
from chargpt.processor import core_count
from chargpt.sampling.options import PRECISION, Precision, SamplingOptions
from chargpt.sampling.rules import WINDOW
from chargpt.sampling.writer import Choice, NewIds, Texts, Writer
from chargpt.standard import CHANGED, is_standard
from chargpt.standard_model import KINDS, TOKENS, check_shapes, has_positions

Weights = Mapping[str, np.ndarray]  # of a model, float32, by the names of model.py

# Parameters below which this engine writes one text faster than a GPU. Beside an H200, with a thread for each head, it wrote
# 4,700 characters a second with 3.2 million parameters, the GPU 4,269; with 10.65 million 2,122 and 2,304.
FASTER_THAN_GPU = 5e6
MAX_POSITIONS = 2**24  # numbers in a table of fixed positions, which decode.c needs in full; PyTorch makes it as it is used
PRECISIONS = get_args(Precision)
LARGEST = 127  # of the whole numbers of int8; -128 is not used
SMOOTH = 0.02  # seconds: pieces that arrive this close together look like continuous text
MAX_PIECE = 64  # ids in a piece
LARGE_PAGE = 2**21  # bytes
ALL = slice(None)
C_TYPES: dict[str, Any] = {"double": c_double, "float": c_float, "int": c_int}  # of rules, in the order of `Rules` in decode.c
RULES = {name: entry for name, entry in entries(SamplingOptions).items() if entry.c}  # which decode.c has
ALIGNMENT = 64  # bytes of the longest vectors of a processor, which decode.c reads at once


class Shape(Structure):
    """The model's shape and tables, and the number of texts and threads. See `Shape` in decode.c."""

    _fields_ = [
        *((name, c_int) for name in ("n_layer", "n_head", "n_embd", "block_size", "vocab_size", "texts", "ranks", "precision")),
        *((name, c_void_p) for name in ("tokens", "positions", "rotary", "logits")),
    ]


class Share(Structure):
    """A thread's part of the model, and its memory. See `Share` in decode.c."""

    _fields_ = [
        *((name, c_int) for name in ("heads", "hidden", "first_id", "ids", "capacity")),
        *((name, c_void_p) for name in ("weights", "keys", "values", "scratch")),
    ]


class Rules(Structure):
    """The sampling rules that decode.c has, by the names of their options, and what they need. See `Rules` there."""

    _fields_ = [
        *((name, kind) for c, kind in C_TYPES.items() for name, rule in RULES.items() if rule.c == c),
        *((name, c_int) for name in ("known", "window")),
        *((name, c_void_p) for name in ("forbidden", "history")),
    ]


def supports(config: ModelConfig) -> bool:
    """Whether decode.c computes this model. Other models are for the decoder in PyTorch."""
    if config.positions != "learned" and config.block_size * config.n_embd > MAX_POSITIONS:
        return False
    return max(config.n_layer, 4 * config.n_embd, config.block_size) < 2**31 and is_standard(config)


@functools.cache
def load_kernel(cache: Path | None = None) -> ctypes.CDLL:
    """decode.c, as `load` of compiler.py finds it, once in a process. Raises Unavailable."""
    kernel = load(DECODE, cache=cache)
    given = (c_void_p, POINTER(Rules), c_int, c_int, c_void_p, c_int, c_void_p, c_void_p, c_void_p)
    model = (POINTER(Shape), POINTER(Share))
    declare(kernel, decoder_new=(c_void_p, *model), decoder_free=(None, c_void_p), decoder_run=(None, *given))
    declare(kernel, decoder_scratch_size=(c_size_t, *model))
    return kernel


def c_engine(config: ModelConfig) -> tuple[ctypes.CDLL | None, str]:
    """decode.c for a model of this shape, compiled when it is first used on a machine, or None; and what a person is told."""
    try:
        if supports(config):
            return load_kernel(), "cpu (compiled)"
        return None, f"cpu (not compiled: {CHANGED})" if has_positions(config) and not is_standard(config) else "cpu"
    except Unavailable as reason:
        return None, f"cpu (not compiled: {reason})"


def c_writer(weights: Weights, config: ModelConfig, *, kernel: ctypes.CDLL, precision: str = "float32") -> Writer:
    """What writes with these weights, which are rounded to `precision`. It reads them when it begins a text."""
    return Writer(functools.partial(CTexts, weights, config, kernel=kernel, precision=precision), config.block_size)


class CTexts(Texts):
    """B texts in the memory of decode.c. Its weights, if they are rounded to `precision`, are read in as few bytes."""

    def __init__(self, weights: Weights, config: ModelConfig, texts: int, *, kernel: ctypes.CDLL, precision: str) -> None:
        """It uses as many threads as torch, if that is in use. Raises MemoryError; ValueError for weights of another model."""
        check_shapes(weights, config, len(weights.get(TOKENS, ())))
        if wrong := [name for name, numbers in weights.items() if numbers.dtype != np.float32]:
            raise ValueError(f"{wrong[0]} is {weights[wrong[0]].dtype}, not float32")
        torch, kind = sys.modules.get("torch"), KINDS[config.positions]
        ranks = min(torch.get_num_threads() if torch else core_count(), config.n_head)
        tokens, table = _aligned(weights[TOKENS]), _aligned(kind.table(weights, config))
        layout = _Layout(weights, config, ranks, kernel=kernel, precision=precision)
        self._kernel, self._vocab_size, self._texts = kernel, len(tokens), texts
        self._logits = _aligned(np.zeros((texts, _padded(len(tokens), layout.panel)), np.float32))
        self._steps = 4  # ids in the next piece
        sizes = (config.n_layer, config.n_head, config.n_embd, config.block_size, len(tokens), texts, ranks)
        shape = Shape(*sizes, PRECISIONS.index(precision), tokens=tokens.ctypes.data, logits=self._logits.ctypes.data)
        setattr(shape, "rotary" if kind.rotates else "positions", table.ctypes.data)
        scratch = [_aligned(np.zeros(kernel.decoder_scratch_size(shape, share), np.uint8)) for share in layout.shares]
        for share, memory in zip(layout.shares, scratch):
            share.scratch = memory.ctypes.data
        self._cache = _Cache(layout.shares, config, texts, kernel=kernel)
        self._used_by_kernel = (layout, tokens, table, scratch)
        self._decoder = kernel.decoder_new(byref(shape), layout.shares)
        if not self._decoder:
            raise MemoryError(f"{texts} texts at once: no memory, or no more threads allowed; ask for fewer")
        weakref.finalize(self, kernel.decoder_free, self._decoder)

    def read(self, start: int, ids: np.ndarray) -> np.ndarray:
        self._run(Rules(), start, ids)
        return self._logits[:, : self._vocab_size].copy()

    def write(self, start: int, texts: np.ndarray, count: int, limit: int, choice: Choice) -> NewIds:
        if not choice.rules.keys() <= RULES.keys():
            return super().write(start, texts, count, limit, choice)
        started, V, B = time.perf_counter(), self._vocab_size, self._texts
        steps = min(limit, self._steps)
        mask, last = np.zeros(V, np.uint8), texts[:, -WINDOW:]
        mask[choice.forbidden] = 1
        rules = Rules(forbidden=mask.ctypes.data, **{name: rule.off for name, rule in RULES.items()})
        for name, value in choice.rules.items():
            setattr(rules, name, min(value, V) if name == "top_k" else value)
        if rules.repetition_penalty > 1:
            history = np.empty((B, last.shape[1] + steps), np.int64)  # row by row, whatever the order of `texts` in memory
            history[:, : last.shape[1]] = last
            rules.history, rules.known, rules.window = history.ctypes.data, last.shape[1], WINDOW
        drawn = choice.uniform(steps) if rules.temperature > 0 else None
        new = NewIds(np.empty((steps, B), np.int64), np.empty((steps, B), np.float32))
        self._run(rules, start, texts[:, -count:], drawn, new)
        is_quick = time.perf_counter() - started < SMOOTH / 2
        self._steps = min(2 * self._steps, MAX_PIECE) if is_quick else max(1, self._steps // 2)
        return new

    def _run(
        self, rules: Rules, start: int, ids: np.ndarray, uniform: np.ndarray | None = None, new: NewIds | None = None
    ) -> None:
        ids, steps = np.ascontiguousarray(ids), len(new.ids) if new else 0
        self._cache.reserve(start + ids.shape[1] + max(0, steps - 1))
        chosen, log_probabilities = (array.ctypes.data for array in new) if new else (None, None)
        numbers = None if uniform is None else uniform.ctypes.data
        read = (start, ids.shape[1], ids.ctypes.data, steps)
        self._kernel.decoder_run(self._decoder, byref(rules), *read, numbers, chosen, log_probabilities)


def pack(matrix: np.ndarray, precision: str) -> tuple[np.ndarray, np.ndarray | None]:
    """The numbers (N, K) that store `matrix` (N, K), float32, and for int8 the scale (N,) of each row, in float32.

    The numbers of bfloat16 are its bits, as uint16: they differ from the original by at most 2^-8 of it; those of int8 by at
    most 1/254 of the row's largest.
    """
    if precision == "bfloat16":  # the upper half, rounded to the nearest, of two equally near ones to the even one
        bits = matrix.view(np.uint32)
        return ((bits + (0x7FFF + (bits >> 16 & 1))) >> 16).astype(np.uint16), None
    if precision != "int8":
        with np.errstate(over="ignore"):  # of float16; who packs looks for numbers that are not finite
            return matrix.astype(precision, copy=False), None
    scales = np.abs(matrix).max(axis=1) / np.float32(LARGEST)
    scales[scales == 0] = 1.0
    return (matrix / scales[:, None]).round().clip(-LARGEST, LARGEST).astype(np.int8), scales


def unpack(numbers: np.ndarray, scales: np.ndarray | None) -> np.ndarray:
    """The matrix that `pack` has stored, in float32."""
    if numbers.dtype == np.uint16:
        return (numbers.astype(np.uint32) << 16).view(np.float32)
    return numbers.astype(np.float32) if scales is None else numbers * scales[:, None]


def round_weights(weights: Weights, precision: str) -> Weights:
    """The weights, each matrix as it is after storing. Raises UserError for an unknown precision."""
    if check("precision", precision, PRECISION) == "float32":
        return weights
    return {
        name: unpack(*pack(numbers, precision)) if numbers.ndim == 2 and not name.startswith("position") else numbers
        for name, numbers in weights.items()
    }


class _Layout:
    """The weights of a model as decode.c reads them: a vector of bytes for each rank (thread), in the order of use."""

    def __init__(self, weights: Weights, config: ModelConfig, ranks: int, *, kernel: ctypes.CDLL, precision: str) -> None:
        self._weights = weights
        packed = functools.cache(lambda name: pack(weights[f"{name}.weight"], precision))  # once for all ranks
        matrix = functools.partial(self._matrix, packed)
        sizes = ("decoder_panel", "decoder_lanes", "decoder_step")
        self.panel, self._lanes, self._step = (c_int.in_dll(kernel, name).value for name in sizes)
        C, d, V = config.n_embd, config.n_embd // config.n_head, len(weights[TOKENS])
        shares, self._vectors = list[Share](), list[np.ndarray]()  # into which the shares point
        parts = (_split(config.n_head, ranks), _split(4 * C, ranks, self.panel), _split(V, ranks, self.panel))
        for heads, hidden, ids in zip(*parts):
            own, is_first = slice(heads.start * d, heads.stop * d), heads.start == 0
            qkv, read = np.arange(3 * C).reshape(3, C)[:, own].ravel(), list[np.ndarray]()
            for block in (f"blocks.{i}" for i in range(config.n_layer)):
                read += [self._norm(f"{block}.norm_1"), matrix(f"{block}.attn.qkv", outputs=qkv)]
                # The ranks' outputs are summed, so only the first one adds the bias.
                read += [matrix(f"{block}.attn.proj", inputs=own, with_bias=is_first)]
                read += [self._norm(f"{block}.norm_2"), matrix(f"{block}.mlp.up", outputs=hidden)]
                read += [matrix(f"{block}.mlp.down", inputs=hidden, with_bias=is_first)]
            read += [self._norm("norm"), matrix("token_embedding", outputs=ids)]
            self._vectors.append(np.concatenate(read, out=in_large_pages(sum(map(len, read)))))
            lengths = (heads.stop - heads.start, hidden.stop - hidden.start, ids.start, ids.stop - ids.start)
            shares.append(Share(*lengths, weights=self._vectors[-1].ctypes.data))
        self.shares = (Share * ranks)(*shares)

    def _norm(self, name: str) -> np.ndarray:
        weight = self._weights[f"{name}.weight"]
        return _rows(_padded(len(weight), self.panel), weight, self._weights.get(f"{name}.bias")).ravel().view(np.uint8)

    def _matrix(
        self,
        packed: Callable[[str], tuple[np.ndarray, np.ndarray | None]],
        name: str,
        *,
        outputs: np.ndarray | slice = ALL,
        inputs: slice = ALL,
        with_bias: bool = True,
    ) -> np.ndarray:
        """Panels of `outputs` of a weight (N, K): the weights of `inputs`, input by input, then the biases, then any scales. A
        word of 32 bits holds the numbers of several vectors, lane by lane, the first one in the lowest bits."""
        numbers, scales = packed(name)
        numbers = numbers[outputs][:, inputs]
        N, K = numbers.shape
        panels, width = -(-N // self.panel), _padded(K, self._step)  # a rank may have no outputs or no inputs
        padded = np.zeros((panels * self.panel, width), numbers.dtype)
        padded[:N, :K] = numbers
        words = (self.panel * numbers.itemsize // (4 * self._lanes), 4 // numbers.itemsize, self._lanes)
        by_input = np.ascontiguousarray(padded.reshape(panels, *words, width).transpose(0, 4, 1, 3, 2))
        bias = self._weights.get(f"{name}.bias") if with_bias else None
        behind = [None if bias is None else bias[outputs], *([] if scales is None else [scales[outputs]])]
        rows = _rows(panels * self.panel, *behind).reshape(len(behind), panels, self.panel)
        columns = [by_input.reshape(panels, width * self.panel), *rows]
        return np.concatenate([one.view(np.uint8) for one in columns], axis=1).ravel()


class _Cache:
    """The keys and values of B texts, for each share: (2, n_layer, B, heads, positions, d), with d padded. The numbers of a
    head lie side by side in the order of the positions, for keys in blocks of them, so that more can follow."""

    def __init__(self, shares: "ctypes.Array[Share]", config: ModelConfig, texts: int, *, kernel: ctypes.CDLL) -> None:
        self._block, line = (c_int.in_dll(kernel, name).value for name in ("decoder_keys", "decoder_line"))
        self._shares, self._block_size, self._texts = shares, config.block_size, texts
        width = _padded(config.n_embd // config.n_head, line)
        self._parts = [np.zeros((2, config.n_layer, texts, share.heads, 0, width), np.float32) for share in shares]

    def reserve(self, positions: int) -> None:
        """Make room for so many. It at least doubles, so that copying takes little of the time. Raises MemoryError."""
        had, needed = self._shares[0].capacity, _padded(positions, self._block)
        if needed <= had:
            return
        capacity = min(max(needed, 2 * had), _padded(self._block_size, self._block))
        try:
            self._parts = [self._grown(part, capacity) for part in self._parts]
        except MemoryError:
            message = f"{self._texts} texts at once: not enough memory for their keys and values; ask for fewer"
            raise MemoryError(message) from None
        for share, (keys, values) in zip(self._shares, self._parts):
            share.capacity, share.keys, share.values = capacity, keys.ctypes.data, values.ctypes.data

    def _grown(self, part: np.ndarray, capacity: int) -> np.ndarray:
        """A copy with zeros for further positions."""
        *shape, had, width = part.shape
        size = 4 * math.prod(shape) * capacity * width
        grown = _aligned_bytes(size).view(np.float32).reshape(*shape, capacity, width)
        grown[..., :had, :], grown[..., had:, :] = part, 0
        return grown


def _rows(width: int, *vectors: np.ndarray | None) -> np.ndarray:
    """The vectors, float32, filled up with zeros; None is all zeros."""
    rows = np.zeros((len(vectors), width), np.float32)
    for row, vector in zip(rows, vectors):
        if vector is not None:
            row[: len(vector)] = vector
    return rows


def in_large_pages(size: int) -> np.ndarray:
    """Memory for `size` bytes at an address for whole vectors. NumPy asks Linux for large pages if it is 4 MB or more. Reading
    42 MB was a third faster in them. A CPU stops reading ahead at the end of a page, and knows the addresses of few."""
    return _aligned_bytes(max(size, 2 * LARGE_PAGE), LARGE_PAGE)[:size]


def _aligned(array: np.ndarray) -> np.ndarray:
    """A copy of `array`, row by row, at an address for whole vectors."""
    copy = _aligned_bytes(array.nbytes).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _aligned_bytes(size: int, alignment: int = ALIGNMENT) -> np.ndarray:
    memory = np.empty(size + alignment, np.uint8)
    return memory[-memory.ctypes.data % alignment :][:size]


def _padded(n: int, to: int) -> int:
    return -(-n // to) * to


def _split(n: int, ranks: int, unit: int = 1) -> list[slice]:
    """`n` items divided among the ranks as evenly as possible, in multiples of `unit`."""
    units = -(-n // unit)
    ends = [min(n, unit * (units * rank // ranks)) for rank in range(ranks + 1)]
    return [slice(start, end) for start, end in zip(ends, ends[1:])]
