"""The loss of each character: equal to one prediction at a time in any windows."""

import numpy as np
import pytest
import torch

from chargpt.kernels.step import KernelModel
from chargpt.model import GPT, GPTConfig
from chargpt.sampling import surprisal
from chargpt.sampling.surprisal import losses_of
from chargpt.text import windows

SIZE, V = 8, 11


@pytest.fixture(scope="module", params=[16, 32], ids=["by torch", "by a kernel"])
def model(request) -> GPT:
    torch.manual_seed(1)
    return GPT(GPTConfig(n_layer=2, n_head=2, n_embd=request.param, block_size=SIZE), V).eval()


@pytest.fixture(autouse=True)
def kernels_for_short_texts(monkeypatch):
    monkeypatch.setattr(surprisal, "WORTH_A_KERNEL", 0)


def all_of(model: GPT, ids: np.ndarray, stride: int) -> np.ndarray:
    return np.concatenate([np.zeros(0), *losses_of(model, ids, stride=stride)])


def one_at_a_time(model: GPT, ids: np.ndarray, stride: int) -> np.ndarray:
    """The definition: id t is predicted by the first window that reaches it, from the beginning of that window."""
    losses = []
    for t in range(1, len(ids)):
        start = 0 if t <= SIZE else -(-(t - SIZE) // stride) * stride
        logits = model(torch.from_numpy(ids[None, start:t]))[0, -1]
        losses.append(-logits.log_softmax(-1)[ids[t]].item())
    return np.array(losses)


@pytest.mark.parametrize("stride", [1, 3, SIZE - 1, SIZE])
@pytest.mark.parametrize("length", [0, 1, 2, SIZE + 1, 61])
def test_every_id_is_predicted_once_with_the_context_that_the_stride_leaves(model, stride, length, monkeypatch):
    monkeypatch.setattr(windows, "IDS_AT_ONCE", 3 * SIZE)  # several batches
    ids = np.random.default_rng(length).integers(0, V, length)
    expected = one_at_a_time(model, ids, stride)
    np.testing.assert_allclose(all_of(model, ids, stride), expected, atol=1e-5)


def test_memory_is_bounded_by_the_batch(model, monkeypatch):
    sizes = []
    for kind, name in ((GPT, "forward"), (KernelModel, "logits")):
        computed = getattr(kind, name)
        monkeypatch.setattr(kind, name, lambda self, idx, computed=computed: sizes.append(idx.numel()) or computed(self, idx))
    ids = np.zeros(30_000, np.int64)
    assert sum(len(losses) for losses in losses_of(model, ids, stride=SIZE)) == len(ids) - 1
    assert max(sizes) <= windows.IDS_AT_ONCE
