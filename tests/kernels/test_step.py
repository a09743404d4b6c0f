"""The gradient of a step by a kernel: that of model.py in float64 to a stated error, and with the same bits for any threads."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from chargpt.config import OptimConfig
from chargpt.kernels.step import KernelModel, KernelMuon, StepKernel, is_faster
from chargpt.model import GPT, GPTConfig
from chargpt.training.optimizers import NEWTON_SCHULZ, orthogonalised
from chargpt.training.weights import FlatWeights

# The largest error of a parameter's gradient, relative to it, and of the loss.
ERROR = {torch.float32: 1e-5, torch.bfloat16: 0.03}
# Times torch's own error.
AS_TORCH = {torch.float32: 3, torch.bfloat16: 1.5}


@pytest.fixture
def kernel(library) -> StepKernel:
    return StepKernel(*library)


def model_of(kernel: StepKernel, vocab_size: int, B: int, **shape: object) -> tuple[FlatWeights, tuple[Tensor, Tensor]]:
    """A model whose biases and norms are not those of the beginning, and B windows."""
    torch.manual_seed(0)
    config = GPTConfig(**{"n_layer": 1, "n_head": 1, "n_embd": 32, **shape})
    model = GPT(config, vocab_size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    ids = torch.from_numpy(np.random.default_rng(1).integers(0, vocab_size, (B, config.block_size + 1)))
    return FlatWeights(model, kernel.dtype, step=kernel), (ids[:, :-1].contiguous(), ids[:, 1:].contiguous())


def by_kernel(weights: FlatWeights, *batch: Tensor, seed: int = 0, **given: object) -> tuple[float, Tensor]:
    loss = weights.by_kernel().add_gradient(*batch, **{"scale": 1.0, "seed": seed, "begins": True, **given})
    return loss, weights.gradient.clone()


def gradient_of(loss: Tensor, model: GPT, weights: FlatWeights) -> Tensor:
    """The gradient as a float64 vector in the order of the weights."""
    parameters = dict(model.named_parameters())
    return torch.cat([g.double().flatten() for g in torch.autograd.grad(loss, [parameters[name] for name in weights.spans])])


def in_double(weights: FlatWeights, loss_of) -> tuple[float, Tensor]:
    """The loss and the gradient in float64, by autograd, at the weights that the kernel computes with."""
    model = copy.deepcopy(weights.working).double()
    loss = loss_of(model)
    return loss.item(), gradient_of(loss, model, weights)


def errors(found: Tensor, right: Tensor, weights: FlatWeights) -> dict[str, float]:
    """Of each parameter: the norm of the error of its gradient, relative to the gradient."""
    return {name: float((found[span] - right[span]).norm() / right[span].norm()) for name, span in weights.spans.items()}


def logits_loss(model: GPT, idx: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(model(idx).flatten(0, 1), targets.flatten())


SHAPES = [
    (5, 1, dict(n_layer=1, n_head=1, n_embd=32, block_size=1)),
    (65, 5, dict(n_layer=2, n_head=2, n_embd=64, block_size=50, positions="rotary", bias=True)),
    (33, 5, dict(n_layer=1, n_head=4, n_embd=64, block_size=100, positions="sinusoidal")),
    (150, 13, dict(n_layer=1, n_head=3, n_embd=96, block_size=17, bias=True)),
    (65, 2, dict(n_layer=1, n_head=2, n_embd=32, block_size=256, positions="rotary")),
]


@pytest.mark.parametrize("V, B, shape", SHAPES)
def test_the_gradient_is_as_exact_as_torchs(kernel, V, B, shape):
    weights, batch = model_of(kernel, V, B, **shape)
    right_loss, right = in_double(weights, lambda model: logits_loss(model, *batch))
    torchs = errors(gradient_of(weights.working(*batch), weights.working, weights), right, weights)
    loss, gradient = by_kernel(weights, *batch)
    assert abs(loss - right_loss) < ERROR[kernel.dtype] / 10 * right_loss
    for name, error in errors(gradient.double(), right, weights).items():
        if shape["block_size"] > 1 or "qkv" not in name:  # with one character, the gradients of queries and keys are 0
            assert error <= AS_TORCH[kernel.dtype] * torchs[name] + ERROR[torch.float32], name
            assert error <= ERROR[kernel.dtype], name


@pytest.mark.parametrize("V, B, shape", SHAPES)
def test_logits_are_as_exact_as_torchs(kernel, V, B, shape):
    """Also of fewer characters than the context has, and of a model whose parameters lie anywhere."""
    weights, (whole, _) = model_of(kernel, V, B, dropout=0.5, **shape)
    model = weights.working.eval()
    exact, copied = copy.deepcopy(model).double(), KernelModel.of(kernel, copy.deepcopy(model))
    for idx in (whole, whole[:, : shape["block_size"] // 2 + 1]):
        right = exact(idx)
        torchs = (model(idx).double() - right).norm()
        for computing in (weights.by_kernel(), copied):
            logits = computing.logits(idx)
            assert logits.dtype == torch.float32
            assert (logits - right).norm() <= AS_TORCH[kernel.dtype] * torchs + ERROR[torch.float32] * right.norm()


def test_bits_depend_neither_on_threads_nor_on_what_is_computed_beside_them(kernel):
    """A gradient before and after logits is the same, too."""
    shape = dict(block_size=48, positions="rotary", bias=True, dropout=0.1)
    weights, batch = model_of(kernel, 37, 13, **shape)
    computing, (loss, gradient) = weights.by_kernel(), by_kernel(weights, *batch)
    whole = computing.logits(batch[0])
    for threads, rows in ((1, slice(0, 13)), (2, slice(3, 9)), (3, slice(4, 5)), (8, slice(7, 10))):
        torch.set_num_threads(threads)
        assert torch.equal(computing.logits(batch[0][rows]), whole[rows])
        again = by_kernel(weights, *batch)
        assert again[0] == loss and torch.equal(again[1], gradient)


@pytest.mark.parametrize("soft", [False, True])
def test_targets_may_not_count_and_probabilities_can_take_their_place(kernel, soft):
    weights, (idx, targets) = model_of(kernel, 37, 6, n_head=2, block_size=20, bias=True)
    expected = torch.randn(6, 20, 37).softmax(dim=-1) if soft else None
    targets[:, 7:9] = targets[2] = -100
    counts = (targets != -100).flatten()

    def loss_of(model: GPT) -> Tensor:
        goals = targets.flatten() if expected is None else expected.to(model.norm.weight.dtype).flatten(0, 1)
        losses = F.cross_entropy(model(idx).flatten(0, 1), goals, reduction="none")
        return (losses * counts).sum() / counts.sum()

    right_loss, right = in_double(weights, loss_of)
    loss, gradient = by_kernel(weights, idx, targets, expected=expected)
    assert loss == pytest.approx(right_loss, rel=ERROR[kernel.dtype])
    assert max(errors(gradient.double(), right, weights).values()) < ERROR[kernel.dtype]


def mixed(x: np.ndarray) -> np.ndarray:
    """step.h's `mixed`."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)


def mask(seed: int, site: int, rows: int, C: int, p: float) -> np.ndarray:
    """What dropout multiplies with at a site of the model, (rows, C): step.h's `row_key` and `dropped`."""
    sites, places = (np.uint64(0x9E3779B97F4A7C15) * np.arange(1, n + 1, dtype=np.uint64) for n in (site + 1, rows))
    keys = mixed(mixed(np.uint64(seed) + sites[site:]) + places).astype(np.uint32)
    x = np.arange(C, dtype=np.uint32) * np.uint32(0x9E3779B9) + keys[:, None]
    x = (x ^ x >> 16) * np.uint32(0x7FEB352D)
    x = (x ^ x >> 15) * np.uint32(0x846CA68B)
    return ((x ^ x >> 16) >> 1 >= int(p * 2**31)) / (1 - p)


def test_dropout_is_a_function_of_the_seed_and_of_the_place(kernel, monkeypatch):
    """torch's dropout with the same masks gives the same gradient; half of the numbers are 0, others with another seed."""
    weights, batch = model_of(kernel, 11, 3, n_layer=2, n_head=2, block_size=17, dropout=0.25, bias=True)
    masks = [torch.from_numpy(mask(77, site, 3 * 17, 32, 0.25)).view(3, 17, 32) for site in range(5)]
    assert all(0.2 < float((values == 0).float().mean()) < 0.3 for values in masks)
    sites = iter(masks)
    monkeypatch.setattr(F, "dropout", lambda x, p, training: x * next(sites))
    right_loss, right = in_double(weights, lambda model: logits_loss(model.train(), *batch))
    loss, gradient = by_kernel(weights, *batch, seed=77)
    assert loss == pytest.approx(right_loss, rel=ERROR[kernel.dtype])
    assert max(errors(gradient.double(), right, weights).values()) < ERROR[kernel.dtype]
    assert by_kernel(weights, *batch, seed=77)[0] == loss != by_kernel(weights, *batch, seed=78)[0]


def test_gradients_add_up_and_scale(kernel):
    weights, batch = model_of(kernel, 11, 8, block_size=24)
    loss, whole = by_kernel(weights, *batch)
    assert by_kernel(weights, *batch, scale=0.5) == (loss, pytest.approx(whole / 2, rel=1e-6, abs=1e-9))
    for first, begins in ((0, True), (4, False)):
        half = (tensor[first : first + 4] for tensor in batch)
        weights.by_kernel().add_gradient(*half, scale=0.5, seed=0, begins=begins)
    assert (weights.gradient - whole).norm() < ERROR[kernel.dtype] * whole.norm()


@pytest.mark.parametrize("name, value", [("blocks.0.mlp.up.weight", float("nan")), ("token_embedding.weight", 1e25)])
def test_a_number_that_is_not_finite_shows_in_the_loss(kernel, name, value):
    weights, batch = model_of(kernel, 11, 2, block_size=8)
    weights.vector[weights.spans[name]] *= value  # the square of the latter is too large for float32
    weights.refresh()
    assert np.isnan(by_kernel(weights, *batch)[0])


def test_an_id_beyond_the_vocabulary_is_no_fault_in_memory(kernel):
    weights, batch = model_of(kernel, 11, 2, block_size=8)
    for tensor in batch:
        tensor[1, 3] = 11
        with pytest.raises(AssertionError, match="vocabulary"):
            by_kernel(weights, *batch)
        if tensor is batch[0]:
            with pytest.raises(AssertionError, match="vocabulary"):
                weights.by_kernel().logits(tensor)
        tensor[1, 3] = 10


@pytest.mark.parametrize("shape", [(3, 32, 32), (2, 128, 32), (2, 32, 128), (1, 96, 96)])
def test_muons_update_is_that_of_torch(kernel, shape):
    """The momentum to float32's rounding, the orthogonal matrix to that of its precision; by any number of threads."""
    generator = torch.Generator().manual_seed(0)
    gradient, momentum, weights = (torch.randn(shape, generator=generator, dtype=torch.float64) * 0.01 for _ in range(3))
    moved = momentum.lerp(gradient, 0.05)
    direction = gradient.lerp(moved, 0.95)
    right = orthogonalised(direction, torch.float64)
    torchs = (orthogonalised(direction.float(), kernel.dtype) - right).norm()
    found = [torch.cat((torch.zeros(64 * 64), part.float().flatten())) for part in (gradient, momentum, weights)]
    alone = [part[64 * 64 :].clone() for part in found]
    stacks = [(slice(0, 64 * 64), 64, 64), (slice(64 * 64, len(found[0])), *shape[1:])]
    config = OptimConfig(weight_decay=0.1, momentum=0.95)
    KernelMuon(kernel, config, NEWTON_SCHULZ, stacks, *found).update(0.5)
    momentum, weights_now = (part[64 * 64 :].view(shape) for part in found[1:])
    assert (momentum - moved).norm() <= 1e-6 * moved.norm() and not found[2][: 64 * 64].any()
    update = (weights * (1 - 0.5 * 0.1) - weights_now) / (0.5 * 0.2 * max(shape[1:]) ** 0.5)
    assert (update - right).norm() <= 1.5 * torchs + 1e-6 * right.norm()
    torch.set_num_threads(3)
    KernelMuon(kernel, config, NEWTON_SCHULZ, [(slice(0, shape[1] * shape[2]), *shape[1:])], *alone).update(0.5)
    assert torch.equal(alone[2].view(shape)[0], weights_now[0])


def test_models_for_which_torch_is_faster_are_left_to_it(monkeypatch):
    """A large model takes a processor with AVX-512, without AMX, and few threads; a small one none of these."""
    large, small = GPTConfig(n_layer=6, n_head=6, n_embd=384), GPTConfig(n_layer=4, n_head=4, n_embd=128)
    for capability, has_amx, threads, right in (
        ("AVX512", False, 2, True),
        ("AVX512", False, 16, False),
        ("AVX512", True, 2, False),
        ("AVX2", False, 2, False),
    ):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda capability=capability: capability)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda has_amx=has_amx: has_amx)
        torch.set_num_threads(threads)
        assert is_faster(large) == right and is_faster(small)
    torch.set_num_threads(1)
    assert not is_faster(GPTConfig(n_layer=12, n_head=12, n_embd=768))
