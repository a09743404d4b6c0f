"""The gradient of a training step, or the logits alone, on the CPU by one call of C code, and the models that it supports.

What torch does in a hundred calls, each of which reads and writes all activations, goes through the cache a few sequences at a
time. What it does not support is left to torch.
"""

import ctypes
import itertools
from collections.abc import Mapping, Sequence
from ctypes import POINTER, Structure, byref, c_double, c_float, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

import torch
from torch import Tensor

from chargpt.config import ModelConfig, OptimConfig
from chargpt.kernels import attention
from chargpt.kernels.attention import PANEL, SOURCES, build_of, load_kernel, openmp
from chargpt.kernels.compiler import declare
from chargpt.model import GPT, GPTConfig
from chargpt.standard import is_standard
from chargpt.standard_model import KINDS, TOKENS, check_shapes

# Parameters in the blocks up to which torch's steps take longer: docs/lab/speed.md. The second limit is for a processor with
# AVX-512 and without AMX, whose units for products of matrices only torch uses, and for a few threads: two were measured.
MOST_PARAMETERS, MOST_WITH_AVX512 = 4_000_000, 12_000_000
FEW_THREADS = 4
# The parameters of a block and of a model, as step.h numbers them.
OF_BLOCK = (
    *("norm_1.weight", "norm_1.bias", "attn.qkv.weight", "attn.qkv.bias", "attn.proj.weight", "attn.proj.bias"),
    *("norm_2.weight", "norm_2.bias", "mlp.up.weight", "mlp.up.bias", "mlp.down.weight", "mlp.down.bias"),
)
OF_MODEL = (TOKENS, "position_embedding.weight", "norm.weight", "norm.bias")
Rounds = Sequence[tuple[float, float, float]]  # of Muon: the coefficients of each
Stacks = Sequence[tuple[slice, int, int]]  # of matrices: where they are in the vector, rows, columns


class _Step(Structure):
    _fields_ = [
        *((name, c_int) for name in ("B", "T", "h", "C", "V", "layers", "threads", "add")),
        *(("seed", c_uint64), ("threshold", c_uint32), ("scale", c_float), ("count", c_int64), ("matrices", c_int64)),
        *((name, c_void_p) for name in ("places", "weights", "positions", "cosine", "sine")),
        *((name, c_void_p) for name in ("idx", "targets", "expected", "gradient", "logits", "scratch")),
        ("openmp", attention._OpenMP),
    ]


class _Stack(Structure):
    _fields_ = [("place", c_int64), *((name, c_int) for name in ("n", "rows", "columns"))]


class _Muon(Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("stacks", "coefficients", "gradient", "momentum", "weights", "scratch")),
        *((name, c_double) for name in ("rate", "decay", "beta")),
        *((name, c_int) for name in ("count", "rounds", "threads")),
        ("openmp", attention._OpenMP),
    ]


def supports(config: ModelConfig | GPTConfig) -> bool:
    """Whether a kernel computes this model's logits and gradient. Others are left to torch."""
    return fits(config) and is_standard(config, dropout=config.dropout)


def fits(config: ModelConfig | GPTConfig) -> bool:
    """Whether the sizes of this model are among those that a kernel computes."""
    return config.n_embd % PANEL == 0 and attention.fits(config)


def is_faster(config: ModelConfig | GPTConfig, *, threads: int = 0) -> bool:
    """Whether the steps of a kernel are clearly faster than torch's for this size, with so many threads (0: torch's)."""
    has_amx = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)()
    has_avx512 = torch.backends.cpu.get_cpu_capability() == "AVX512" and not has_amx
    most = MOST_WITH_AVX512 if has_avx512 and (threads or torch.get_num_threads()) <= FEW_THREADS else MOST_PARAMETERS
    return 12 * config.n_layer * config.n_embd**2 <= most


class StepKernel:
    """The fastest steps for `dtype`, float32 or bfloat16, on this CPU. They are for models that `supports` accepts."""

    def __init__(self, dtype: torch.dtype, library: ctypes.CDLL | None = None) -> None:
        """Without a `library`, the one for this CPU. Raises Unavailable where it does not compile or load."""
        self.library, self.dtype = library or load_kernel(SOURCES[dtype]), dtype
        self.build = build_of(self.library)
        step, muon = POINTER(_Step), POINTER(_Muon)
        declare(self.library, step_scratch_size=(c_size_t, step), muon_scratch_size=(c_size_t, muon))
        declare(self.library, step_run=(c_double, step), muon_update=(None, muon))


class KernelMuon:
    """`Muon` of optimizers.py as a kernel computes it, in one pass over each matrix."""

    def __init__(self, kernel: StepKernel, config: OptimConfig, rounds: Rounds, stacks: Stacks, *vectors: Tensor) -> None:
        """`vectors` are gradient, momentum and weights. Each of the `stacks` is a span of them, and the rows and columns of its
        matrices, which are multiples of PANEL; the largest come last. Raises ValueError for others."""
        structures, numbers = (_Stack * len(stacks))(), (c_float * (3 * len(rounds)))(*itertools.chain(*rounds))
        for i, (span, rows, columns) in enumerate(stacks):
            n, left = divmod(span.stop - span.start, rows * columns)
            uneven = left or rows % PANEL or columns % PANEL or span.start % PANEL
            if uneven or any((v.dtype, v.stride()) != (torch.float32, (1,)) or len(v) < span.stop for v in vectors):
                raise ValueError(f"{span} is no stack of {rows} x {columns} float32, multiples of {PANEL}")
            structures[i] = _Stack(span.start, n, rows, columns)
        self._library, self._kept = kernel.library, (structures, numbers, vectors)  # what the structure points to
        pointers = (ctypes.addressof(structures), ctypes.addressof(numbers), *(vector.data_ptr() for vector in vectors))
        self._muon = _Muon(
            *pointers, None, 0.0, config.weight_decay, config.momentum, len(stacks), len(rounds), openmp=openmp()
        )

    def update(self, rate: float) -> None:
        """Move momentum and weights by the gradient, which is overwritten."""
        muon = self._muon
        muon.rate, muon.threads = rate, torch.get_num_threads()
        scratch = torch.empty(self._library.muon_scratch_size(byref(muon)) + 64, dtype=torch.uint8)
        muon.scratch = -(-scratch.data_ptr() // 64) * 64
        self._library.muon_update(byref(muon))


class KernelModel:
    """A model as a kernel computes it: its logits, and the gradient of its loss.

    `model` has the dtype of the kernel. Its parameters are views of `weights`, at the `spans` of their names; the matrices of
    the blocks come before all others. Their gradients go to the same places of `gradient`, a float32 vector; without it, there
    are only logits. Raises ValueError unless all of that is so: C reads what a standard model has, and looks at no shape.
    """

    def __init__(
        self, kernel: StepKernel, model: GPT, *, weights: Tensor, spans: Mapping[str, slice], gradient: Tensor | None
    ) -> None:
        config, named = model.config, dict(model.named_parameters())
        check_shapes(named, config, model.vocab_size)
        lengths = {name: parameter.numel() for name, parameter in named.items()}
        if {name: span.stop - span.start for name, span in spans.items()} != lengths or sum(lengths.values()) != len(weights):
            raise ValueError("the spans are not those of the parameters of this model")
        if not fits(config) or weights.dtype != kernel.dtype or not weights.is_contiguous() or weights.device.type != "cpu":
            raise ValueError(
                f"no kernel of {kernel.dtype} is for a width of {config.n_embd}, {weights.dtype} on {weights.device}"
            )
        if gradient is not None and (gradient.dtype, len(gradient)) != (torch.float32, len(weights)):
            raise ValueError(f"the gradient has {len(gradient)} numbers of {gradient.dtype}, not {len(weights)} of float32")
        names = [f"blocks.{layer}.{name}" for layer in range(config.n_layer) for name in OF_BLOCK] + [*OF_MODEL]
        places = torch.tensor([spans[name].start if name in spans else -1 for name in names])
        self._kept = (places, weights, gradient)  # what the structure points to
        self._model, self._library, self._scratch = model, kernel.library, torch.empty(0, dtype=torch.uint8)
        self._table, self._positions = torch.empty(0), 0  # the part of the table of positions that was needed, and its length
        self._step = _Step(
            h=config.n_head,
            C=config.n_embd,
            V=model.vocab_size,
            layers=config.n_layer,
            count=len(weights),
            matrices=spans[OF_MODEL[0]].start,
            places=places.data_ptr(),
            weights=weights.data_ptr(),
            gradient=None if gradient is None else gradient.data_ptr(),
            openmp=openmp(),
        )

    @classmethod
    def of(cls, kernel: StepKernel, model: GPT) -> "KernelModel":
        """The logits of a model whose weights do not change: a copy of them is used."""
        named = {name: parameter.detach().flatten() for name, parameter in model.named_parameters()}
        ends = itertools.accumulate(map(len, named.values()))
        spans = {name: slice(end - len(named[name]), end) for name, end in zip(named, ends)}
        return cls(kernel, model, weights=torch.cat([*named.values()]), spans=spans, gradient=None)

    def logits(self, idx: Tensor) -> Tensor:
        """What the model returns for idx (B, T), int64, in evaluation mode: (B, T, V), float32."""
        logits, self._step.threshold = torch.empty(*idx.shape, self._step.V), 0
        self._run(idx=idx, logits=logits)
        return logits

    def add_gradient(
        self, idx: Tensor, targets: Tensor, *, scale: float, seed: int, begins: bool, expected: Tensor | None = None
    ) -> float:
        """Add the gradient of the mean loss, times `scale`, to that in the vector, or `begins` it; return the loss, in nats.

        idx and targets are (B, T), int64; targets below 0 do not count. `expected`, (B, T, V) float32, are probabilities that
        take the place of each target. Dropout is a function of `seed` and of the place in the batch.
        """
        step = self._step
        if not step.gradient or targets.dtype != torch.int64 or idx.shape != targets.shape:
            raise ValueError(f"targets are {tuple(targets.shape)}, {targets.dtype}, for ids {tuple(idx.shape)}")
        if expected is not None and (expected.dtype, expected.shape) != (torch.float32, (*idx.shape, step.V)):
            raise ValueError(f"probabilities are {tuple(expected.shape)}, {expected.dtype}, for ids {tuple(idx.shape)}")
        step.threshold = int(self._model.config.dropout * 2**31)
        step.add, step.seed, step.scale = not begins, seed % 2**64, scale
        return self._run(idx=idx, targets=targets, expected=expected)

    def _run(self, *, idx: Tensor, **tensors: Tensor | None) -> float:
        """What the library returns for these tensors."""
        step, (B, T) = self._step, idx.shape
        if idx.dtype != torch.int64 or not B or not 0 < T <= self._model.config.block_size:
            raise ValueError(f"ids are {tuple(idx.shape)}, {idx.dtype}")
        given = {name: None if tensor is None else tensor.contiguous() for name, tensor in (tensors | {"idx": idx}).items()}
        for name in ("idx", "targets", "expected", "logits"):
            tensor = given.get(name)
            setattr(step, name, None if tensor is None else tensor.data_ptr())
        step.B, step.T, step.threads = B, T, torch.get_num_threads()
        if T > self._positions:  # learned ones are views of the weights
            self._table, self._positions = self._model.position_table(T).detach().contiguous(), T
            names = ("cosine", "sine") if KINDS[self._model.config.positions].rotates else ("positions",)
            for name, table in zip(names, self._table.view(len(names), T, -1)):
                setattr(step, name, table.data_ptr())
        size = self._library.step_scratch_size(byref(step))
        if len(self._scratch) < size + 64:
            self._scratch = torch.empty(size + 64, dtype=torch.uint8)
        step.scratch = -(-self._scratch.data_ptr() // 64) * 64
        found = self._library.step_run(byref(step))
        assert not found < -0.5, "an id that is not one of the vocabulary"
        return found
