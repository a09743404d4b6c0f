"""Evaluation covers the whole text once, in a fixed order, and leaves training untouched."""

import numpy as np
import pytest
import torch

from chargpt.interrupt import Interrupt
from chargpt.kernels.compiler import Unavailable
from chargpt.kernels.step import KernelModel, StepKernel
from chargpt.model import GPT, GPTConfig
from chargpt.text.item_stream import ItemMarks
from chargpt.training.evaluation import evaluate, evaluate_at, validation_split


def make_model(**settings) -> GPT:
    torch.manual_seed(0)
    return GPT(GPTConfig(n_layer=1, n_head=2, n_embd=16, block_size=8, bias=True, **settings), 7)


def test_loss_is_that_of_single_windows():
    model = make_model().eval()
    ids = np.random.default_rng(0).integers(7, size=43).astype(np.uint8)
    total = 0.0
    for start in range(0, 42, 8):
        window = torch.from_numpy(ids[start : start + 9].astype(np.int64))[None]
        total += model(window[:, :-1], window[:, 1:]).item() * (window.size(1) - 1)
    assert evaluate(model, ids) == pytest.approx(total / 42, rel=1e-5)


@pytest.mark.parametrize("vocab_size, rows", [(7, 2048), (1000, 524), (600_000, 1)])
def test_a_batch_is_as_large_as_memory_allows(vocab_size, rows):
    """At most 16,384 characters and 4 million logits at once, but at least one window; no gradient is prepared."""
    model, shapes = GPT(GPTConfig(n_layer=1, n_head=1, n_embd=2, block_size=8), vocab_size), []

    def note(module: torch.nn.Module, inputs: tuple, loss: torch.Tensor) -> None:
        shapes.append(inputs[0].shape)
        assert not loss.requires_grad

    model.register_forward_hook(note)
    loss = evaluate(model, np.zeros(8 * (rows + 1) + 1, np.uint8))
    assert isinstance(loss, float) and shapes == [(rows, 8), (1, 8)]


def test_nothing_of_the_training_moves():
    model = make_model(dropout=0.3).train()
    ids = np.zeros(50, np.uint8)
    before = torch.get_rng_state()
    first = evaluate(model, ids)
    assert evaluate(model, ids) == first
    interrupt = Interrupt()
    interrupt.signal = 2  # is answered within a batch
    assert evaluate_at((1.0,), model, ids, interrupt=interrupt) is None
    assert torch.equal(before, torch.get_rng_state())
    assert model.training
    assert all(p.grad is None for p in model.parameters())


def test_a_kernel_gives_the_loss_of_torch():
    """Also where targets do not count: of items, whose loss is that of each item alone."""
    try:
        kernel = StepKernel(torch.float32)
    except Unavailable as reason:
        pytest.skip(f"needs a C compiler: {reason}")
    torch.manual_seed(0)
    model = GPT(GPTConfig(n_layer=2, n_head=2, n_embd=32, block_size=8, bias=True, dropout=0.5), 7).train()
    ids = np.random.default_rng(0).integers(1, 7, size=2000).astype(np.uint8)
    ids[::5] = 0
    for marks in (None, ItemMarks(end=0, tab=None)):
        right = evaluate(model, ids, marks=marks)
        (loss,) = evaluate_at((1.0,), model, ids, kernel=KernelModel.of(kernel, model), marks=marks) or []
        assert loss == pytest.approx(right, rel=1e-6)


def test_a_long_validation_split_is_evaluated_from_its_start():
    ids = np.arange(100)
    assert np.array_equal(validation_split(ids, 10), ids[:11]) and validation_split(ids, 0) is ids
    assert len(validation_split(ids, 1000)) == 100
