"""Writing on the CPU by decode.c, which is compiled when it is first needed. Where that cannot be, generate.py writes alone.

The C side defines nothing: it reads as model.py does and chooses as generate.py does, so the same seed writes the same text,
up to ties within float32's rounding.
"""

import ctypes
import hashlib
import math
import os
import shutil
import subprocess
import tempfile
import time
import weakref
from collections.abc import Iterator, Sequence
from ctypes import POINTER, Structure, byref, c_float, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chargpt import generate
from chargpt.generate import Piece, Reader, Sampling
from model import GPT

SOURCE = Path(__file__).with_name("decode.c")
# Of -ffast-math what lets the compiler reorder sums, and nothing that makes a single operation less exact.
FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fPIC", "-shared", "-pthread", "-fno-math-errno", "-fno-trapping-math",
         "-fno-signed-zeros", "-fassociative-math", "-ffinite-math-only")
SMOOTH = 0.02  # seconds: text that comes in pieces this far apart looks continuous
LONGEST = 64  # ids in a piece


class _Shape(Structure):
    _fields_ = [
        *((name, c_int) for name in ("n_layer", "n_head", "n_embd", "block_size", "vocab_size", "texts", "ranks")),
        *((name, c_void_p) for name in ("tokens", "positions", "rotary", "logits")),
    ]


class _Share(Structure):
    _fields_ = [*((name, c_int) for name in ("heads", "hidden", "first_id", "ids")), ("weights", c_void_p)]


class _Sampling(Structure):
    _fields_ = [*((name, c_float) for name in ("temperature", "top_p", "min_p")), ("top_k", c_int), ("forbidden", c_void_p)]


def load_kernel(cache: Path | None = None) -> ctypes.CDLL | None:
    """decode.c, compiled for this CPU unless `cache` (default: ~/.cache/chargpt) has it. None where that cannot be done."""
    try:
        kernel = ctypes.CDLL(str(_compiled(cache or Path.home() / ".cache" / "chargpt")))
    except (OSError, RuntimeError, subprocess.SubprocessError):
        return None
    kernel.decoder_new.argtypes = [POINTER(_Shape), POINTER(_Share)]
    kernel.decoder_new.restype = c_void_p
    kernel.decoder_free.argtypes = [c_void_p]
    kernel.decoder_free.restype = None
    kernel.decoder_write.argtypes = [c_void_p, POINTER(_Sampling), c_int, c_int, c_void_p, c_int, c_void_p, c_void_p, c_void_p]
    return kernel


def _compiled(cache: Path) -> Path:
    """The compiled decode.c. Raises OSError or subprocess.SubprocessError when there is none and none can be made."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise FileNotFoundError("no C compiler")
    # The macros that it predefines name the compiler, its version, and everything that this CPU can do.
    macros = subprocess.run([compiler, *FLAGS, "-dM", "-E", "-x", "c", os.devnull], capture_output=True, check=True, timeout=60)
    key = hashlib.sha256(b"\0".join((SOURCE.read_bytes(), " ".join(FLAGS).encode(), macros.stdout))).hexdigest()
    library = cache / f"decode-{key[:32]}.so"
    if not library.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            aside = Path(folder) / library.name
            command = [compiler, *FLAGS, str(SOURCE), "-o", str(aside), "-lm"]
            subprocess.run(command, capture_output=True, check=True, timeout=60)
            aside.replace(library)
    return library


def _padded(n: int, to: int) -> int:
    return -(-n // to) * to


def _cuts(n: int, ranks: int, unit: int = 1) -> list[slice]:
    """`n` things shared out in whole units, as evenly as that goes."""
    units = -(-n // unit)
    ends = [min(n, unit * (units * rank // ranks)) for rank in range(ranks + 1)]
    return [slice(start, end) for start, end in zip(ends, ends[1:])]


class Layout:
    """The weights of a model as decode.c reads them: a vector for each rank, in the order of use."""

    def __init__(self, model: GPT, ranks: int, *, panel: int, step: int) -> None:
        self._panel, self._step = panel, step
        vocab_size, C = model.token_embedding.weight.shape
        self.heads = _cuts(model.config.n_head, ranks)
        self.hidden = _cuts(4 * C, ranks, panel)
        self.ids = _cuts(vocab_size, ranks, panel)
        self.vectors = [self._vector(model, rank) for rank in range(ranks)]

    def _vector(self, model: GPT, rank: int) -> Tensor:
        C, d = model.config.n_embd, model.config.n_embd // model.config.n_head
        own = slice(self.heads[rank].start * d, self.heads[rank].stop * d)
        hidden, first = self.hidden[rank], rank == 0  # what all ranks add up has its bias from the first
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
        """Panels of outputs, each with its inputs' weights and then its biases, of weight (N, K) and rows of bias."""
        N, K = weight.shape
        padded = weight.new_zeros(_padded(N, self._panel), _padded(K, self._step) + 1)
        padded[:N, :K] = weight
        if bias is not None:
            padded[:N, -1] = bias[rows]
        return padded.view(-1, self._panel, padded.size(1)).transpose(1, 2).flatten()


class FastReader(Reader):
    """A `Reader` that can also write: it goes on by itself until the block is full."""

    def __init__(self, kernel: ctypes.CDLL, model: GPT, batch_size: int, *, overflow: str = "exact") -> None:
        super().__init__(model, batch_size, overflow=overflow)
        config, tokens = model.config, model.token_embedding.weight
        panel, step = (c_int.in_dll(kernel, name).value for name in ("decoder_panel", "decoder_step"))
        ranks = min(torch.get_num_threads(), config.n_head)
        self._kernel = kernel
        self._layout = Layout(model, ranks, panel=panel, step=step)
        self._logits = torch.zeros(batch_size, _padded(len(tokens), panel))
        table = model.position_embedding.weight if config.positions == "learned" else model.position_table
        self._tables = (tokens.contiguous(), table.contiguous())
        tokens_at, table_at = (tensor.data_ptr() for tensor in self._tables)
        shape = _Shape(
            **{name: getattr(config, name) for name in ("n_layer", "n_head", "n_embd", "block_size")},
            vocab_size=len(tokens), texts=batch_size, ranks=ranks, tokens=tokens_at, logits=self._logits.data_ptr(),
            **{"rotary" if config.positions == "rotary" else "positions": table_at},
        )
        layout = self._layout
        shares = (_Share * ranks)(*(
            _Share(heads.stop - heads.start, hidden.stop - hidden.start, ids.start, ids.stop - ids.start, vector.data_ptr())
            for heads, hidden, ids, vector in zip(layout.heads, layout.hidden, layout.ids, layout.vectors)
        ))
        self._decoder = kernel.decoder_new(byref(shape), shares)
        if not self._decoder:
            raise MemoryError(f"no memory to write {batch_size} texts at once")
        weakref.finalize(self, kernel.decoder_free, self._decoder)
