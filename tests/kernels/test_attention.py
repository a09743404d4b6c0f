import math
import os
import sys

import pytest
import torch
from torch import Tensor

from chargpt.kernels.attention import FusedAttention, openmp
from chargpt.model import GPT, GPTConfig, causal_attention, causal_mask, reference_attention, rotary_table, rotate
from chargpt.training.weights import FlatWeights

ROUNDING = {torch.float32: 2**-24, torch.bfloat16: 2**-8}
ERROR = {torch.float32: 4e-6, torch.bfloat16: 0.01}  # the largest one, relative to the output
AS_TORCH = {torch.float32: 3, torch.bfloat16: 1.5}  # times torch's error; in float32, both are a few roundings


@pytest.fixture
def dtype(library):
    return library[0]


@pytest.fixture
def fused(library):
    return FusedAttention(*library)


def unfused(attend, qkv: Tensor, n_head: int, rotary: Tensor | None = None) -> Tensor:
    B, T, width = qkv.shape
    q, k, v = qkv.view(B, T, 3, n_head, -1).permute(2, 0, 3, 1, 4).unbind(0)
    if rotary is not None:
        q, k = rotate(q, rotary), rotate(k, rotary)
    return attend(q, k, v).transpose(1, 2).reshape(B, T, width // 3)


def plain(*given: object) -> Tensor:
    return unfused(causal_attention, *given)


def exact(*given: object) -> Tensor:
    return unfused(lambda q, k, v: reference_attention(q, k, v, mask=causal_mask(q.size(2))[None, None])[0], *given)


def inputs(B: int, T: int, n_head: int, d: int, *, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """qkv, and the gradient of the output."""
    generator = torch.Generator().manual_seed(0)
    sizes = (B, T, 3 * n_head * d), (B, T, n_head * d)
    return tuple(torch.randn(size, generator=generator).to(dtype) for size in sizes)


def results(attend, qkv: Tensor, dy: Tensor, n_head: int, rotary: Tensor | None = None) -> tuple[Tensor, ...]:
    """The output and the gradients of queries, keys and values."""
    qkv = qkv.clone().requires_grad_()
    y = attend(qkv, n_head, rotary)
    return y.detach(), *torch.autograd.grad(y, qkv, dy)[0].chunk(3, dim=-1)


@pytest.mark.parametrize(
    "B, n_head, T, d, positions",
    [
        (2, 3, 1, 2, "rotary"),
        (2, 3, 15, 20, "learned"),
        (1, 4, 16, 32, "rotary"),
        (2, 1, 17, 64, "learned"),
        (2, 4, 64, 32, "rotary"),
        (1, 2, 65, 7, "learned"),
        (1, 3, 100, 96, "rotary"),
        (1, 2, 256, 64, "rotary"),
        (1, 1, 1024, 32, "learned"),
    ],
)
def test_it_is_as_exact_as_model_py(fused, dtype, B, n_head, T, d, positions):
    rotary = rotary_table(T, d).to(dtype) if positions == "rotary" else None
    qkv, dy = inputs(B, T, n_head, d, dtype=dtype)
    right = results(exact, qkv.double(), dy.double(), n_head, None if rotary is None else rotary.double())
    torchs, ours = (results(attend, qkv, dy, n_head, rotary) for attend in (plain, fused))
    for name, truth, expected, found in zip(("y", "dq", "dk", "dv"), right, torchs, ours):
        # A gradient may vanish, as that of scores does at T = 1, so both errors are given a rounding of the inputs' size.
        rounding = ROUNDING[dtype] * math.sqrt(truth.numel())
        assert (found - truth).norm() <= AS_TORCH[dtype] * (expected - truth).norm() + rounding * (T < 3), name
        assert (found - truth).norm() <= ERROR[dtype] * right[0].norm().clamp(min=math.sqrt(truth.numel())), name


@pytest.mark.parametrize("T, d", [(17, 8), (70, 32), (130, 20)])
def test_no_character_sees_the_future(fused, dtype, T, d):
    qkv, dy = inputs(2, T, 2, d, dtype=dtype)
    for t in (0, T // 2, T - 2):
        dy_t = torch.zeros_like(dy)
        dy_t[:, t] = dy[:, t]
        assert all(not gradient[:, t + 1 :].any() for gradient in results(fused, qkv, dy_t, 2)[1:])
        later = qkv.clone()
        later[:, t + 1 :] = 3
        assert torch.equal(fused(qkv, 2)[:, : t + 1], fused(later, 2)[:, : t + 1])


def test_the_same_input_gives_the_same_bits(fused, dtype):
    qkv, dy = inputs(3, 100, 3, 32, dtype=dtype)
    first = results(fused, qkv, dy, 3)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        assert all(map(torch.equal, first, results(fused, qkv, dy, 3)))


@pytest.mark.parametrize("size", [20, 1e4, 1e6])
def test_large_logits_stay_finite(fused, dtype, size):
    if dtype == torch.bfloat16 and size > 1e4:
        pytest.skip("needs scores that have more than 8 bits")
    qkv, dy = inputs(1, 70, 2, 32, dtype=dtype)
    found = results(fused, qkv * size, dy, 2)
    assert all(tensor.isfinite().all() for tensor in found)
    truth = results(exact, (qkv * size).double(), dy.double(), 2)
    assert (found[0] - truth[0]).norm() < 0.01 * truth[0].norm()
    if size == 20:  # of larger ones, every gradient consists of roundings
        torchs = results(plain, qkv * size, dy, 2)
        for right, expected, ours in zip(truth, torchs, found):
            assert (ours - right).norm() <= 2 * (expected - right).norm()


@pytest.mark.parametrize(("part", "bits"), [(0, 0x7FC00000), (1, 0x7FFFFFFF), (2, 0x7FC00000), (2, 0x7FFFFFFF)])
def test_a_number_that_is_none_reaches_every_row_that_sees_it(fused, dtype, part, bits):
    """As a CPU writes it, or a GPU."""
    qkv, dy = inputs(1, 70, 1, 32, dtype=dtype)
    qkv[0, 33, 32 * part] = torch.tensor(bits, dtype=torch.int32).view(torch.float32).to(dtype)
    y, dq, dk, dv = (tensor[0].isnan().any(dim=1) for tensor in results(fused, qkv, dy, 1))
    sees = slice(33, 34) if part == 0 else slice(33, 70)
    assert y[sees].all() and dq[sees].all() and dk[:34].all() and (part == 2 or dv[:34].all())


def test_a_model_attends_by_it_where_nothing_else_is_needed(fused, dtype):
    torch.manual_seed(0)
    model = GPT(GPTConfig(n_layer=2, n_head=2, n_embd=32, block_size=16, bias=True, positions="rotary"), 7)
    calls, idx = [], torch.randint(7, (2, 16))
    expected = model(idx)
    weights = FlatWeights(model, dtype)
    for block in weights.working.blocks:
        block.attn.fused = lambda *given: calls.append(given) or fused(*given)
    logits = weights.working(idx)
    assert len(calls) == 2
    assert (logits - expected).abs().max() < 5 * ERROR[dtype]
    weights.working(idx, cache=weights.working.new_cache(2))
    assert len(calls) == 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux to count threads")
def test_it_computes_in_the_threads_of_torch(fused, dtype, monkeypatch):
    """Others would have to wait for those of torch, which spin."""
    assert openmp().GOMP_parallel
    torch.set_num_threads(3)
    torch.zeros(2**20).add_(1)
    threads = set(os.listdir("/proc/self/task"))
    qkv, dy = inputs(3, 20, 2, 8, dtype=dtype)
    in_torchs = results(fused, qkv, dy, 2)
    assert set(os.listdir("/proc/self/task")) == threads
    monkeypatch.setattr(fused, "_openmp", type(openmp())())
    assert all(map(torch.equal, in_torchs, results(fused, qkv, dy, 2)))  # in threads of its own
