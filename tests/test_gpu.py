"""What a GPU computes in fewer kernels is what model.py computes. On a CPU, in float64; embeddings of model.py are float32."""

import pytest
import torch
from torch import Tensor

from chargpt.gpu import ONE_HOT, OneHotEmbedding, quicken
from chargpt.model import GPT, POSITIONS, GPTConfig
from chargpt.standard import is_standard


def loss_and_gradients(model: GPT, idx: Tensor) -> list[Tensor]:
    loss = model(idx[:, :-1], idx[:, 1:])
    return [loss.detach(), *torch.autograd.grad(loss, [*model.parameters()])]


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize(("vocabulary", "length"), [(65, 12), (65, 1), (ONE_HOT + 1, 5)])
@pytest.mark.parametrize("bias", [False, True])
def test_a_quickened_model_has_the_loss_and_the_gradients_of_model_py(positions, vocabulary, length, bias):
    """Also for ids that do not occur, a single character, and a vocabulary whose ids are looked up."""
    torch.manual_seed(0)
    shape = GPTConfig(n_layer=2, n_head=3, n_embd=24, block_size=16, positions=positions, bias=bias)
    model = GPT(shape, vocabulary).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    idx = torch.randint(vocabulary, (4, length + 1))
    before = loss_and_gradients(model, idx)
    quicken(model, is_standard=is_standard(model.config))
    assert isinstance(model.token_embedding, OneHotEmbedding) == (vocabulary <= ONE_HOT)
    torch.testing.assert_close(loss_and_gradients(model, idx), before, rtol=1e-5, atol=1e-6)


def test_a_model_with_another_embedding_keeps_it(monkeypatch):
    model = GPT(GPTConfig(n_layer=1, n_head=1, n_embd=8, block_size=8), 7)
    monkeypatch.setattr(type(model.token_embedding), "forward", lambda self, idx: 2 * self.weight[idx])
    before = loss_and_gradients(model, idx := torch.randint(7, (2, 8)))
    quicken(model, is_standard=is_standard(model.config))
    torch.testing.assert_close(loss_and_gradients(model, idx), before)
