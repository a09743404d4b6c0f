"""The weights that training begins with: the first layer attends to previous characters."""

import math

import pytest
import torch

from chargpt.model import GPT, POSITIONS, GPTConfig
from chargpt.training import initialisation
from chargpt.training.initialisation import initial_model

V = 50


def first_layer(model: GPT, idx: torch.Tensor) -> torch.Tensor:
    """The attention of the first layer's heads on `idx` (B, T): (B, h, T, T)."""
    return model.eval().attention(idx)[0]


@pytest.mark.parametrize("positions", initialisation.SCORE_DIFFERENCE)
@pytest.mark.parametrize(("n_head", "n_embd"), [(1, 32), (4, 128), (2, 36)])
def test_of_the_characters_before_each_head_of_the_first_layer_attends_most_to_its_own(monkeypatch, positions, n_head, n_embd):
    monkeypatch.setattr(initialisation, "RANDOM_SHARE", 0.0)  # what is random hides small differences
    torch.manual_seed(0)
    model = initial_model(GPTConfig(n_layer=2, n_head=n_head, n_embd=n_embd, block_size=64, positions=positions), V)
    scores = first_layer(model, torch.randint(V, (64, 64))).log()[:, :, 32:]  # up to a number for each query
    for head in range(n_head):
        before = [scores[:, head].diagonal(32 - distance, dim1=-2, dim2=-1).mean() for distance in range(1, n_head + 4)]
        assert torch.stack(before).argmax() == head


@pytest.mark.parametrize("positions", POSITIONS)
def test_training_begins_near_a_uniform_distribution(positions):
    torch.manual_seed(1)
    model = initial_model(GPTConfig(positions=positions), V).eval()
    idx = torch.randint(V, (4, 129))
    with torch.no_grad():
        assert abs(model(idx[:, :-1], idx[:, 1:]).item() - math.log(V)) < 0.2


@pytest.mark.parametrize(("n_head", "n_embd", "positions"), [(6, 6, "learned"), (5, 15, "sinusoidal"), (5, 10, "rotary")])
def test_heads_may_be_small_or_odd(n_head, n_embd, positions):
    model = initial_model(GPTConfig(n_head=n_head, n_embd=n_embd, positions=positions), V)
    assert all(parameter.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("n_head", "n_embd"), [(1, 32), (4, 128), (6, 384)])
def test_with_rotary_positions_most_attention_is_at_the_distance_of_the_head(n_head, n_embd, bias):
    torch.manual_seed(4)
    shape = GPTConfig(n_layer=1, n_head=n_head, n_embd=n_embd, block_size=64, positions="rotary", bias=bias)
    model = initial_model(shape, V)
    weights = first_layer(model, torch.randint(V, (64, 64)))[:, :, 32:]
    for head in range(n_head):
        assert weights[:, head].diagonal(31 - head, dim1=-2, dim2=-1).mean() > 0.5


@pytest.mark.parametrize(
    ("positions", "bias", "more"),
    [
        ("learned", False, {"position_embedding.weight"}),
        ("sinusoidal", True, set()),
        ("rotary", False, {"token_embedding.weight"}),
        ("rotary", True, {"blocks.0.attn.qkv.bias"}),
    ],
)
def test_it_differs_from_a_plain_model_in_positions_queries_and_keys_alone(positions, bias, more):
    config = GPTConfig(positions=positions, bias=bias)
    torch.manual_seed(3)
    plain = GPT(config, V).state_dict()
    torch.manual_seed(3)
    new = initial_model(config, V).state_dict()
    changed = {name for name, tensor in new.items() if not torch.equal(tensor, plain[name])}
    assert changed == {"blocks.0.attn.qkv.weight"} | more
    values = slice(2 * config.n_embd, None)
    assert torch.equal(new["blocks.0.attn.qkv.weight"][values], plain["blocks.0.attn.qkv.weight"][values])
