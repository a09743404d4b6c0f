"""The learning rate is a pure function of the step; the optimizer's state survives as named tensors."""

import pytest
import torch

from chargpt.config import OptimConfig
from chargpt.optim import learning_rate, load_optimizer_tensors, make_optimizer, optimizer_tensors, prime
from model import GPT, GPTConfig


def make_model() -> GPT:
    torch.manual_seed(0)
    return GPT(GPTConfig(n_layer=2, n_head=2, n_embd=16, block_size=8), 7)


def take_steps(model: GPT, optimizer: torch.optim.Optimizer, first: int, count: int) -> None:
    for step in range(first, first + count):
        idx = torch.randint(7, (4, 9), generator=torch.Generator().manual_seed(step))
        model(idx[:, :-1], idx[:, 1:]).backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("final_fraction", [0.0, 0.1])
def test_rate_climbs_to_its_peak_and_falls_to_its_end(schedule, final_fraction):
    config = OptimConfig(learning_rate=2.0, warmup_steps=10, schedule=schedule, final_fraction=final_fraction)
    rates = [learning_rate(step, config, max_steps=100) for step in range(101)]
    assert 0 < rates[0] < rates[5] < rates[9] < max(rates) == 2.0
    assert all(a >= b for a, b in zip(rates[10:], rates[11:]))
    assert rates[100] == pytest.approx(2.0 * final_fraction)
    assert rates[99] > rates[100]


def test_linear_holds_then_falls_in_a_straight_line():
    config = OptimConfig(learning_rate=1.0, warmup_steps=0, schedule="linear", decay_fraction=0.4)
    rates = [learning_rate(step, config, max_steps=100) for step in range(101)]
    assert set(rates[:61]) == {1.0}
    falls = [a - b for a, b in zip(rates[60:100], rates[61:])]
    assert max(falls) == pytest.approx(min(falls)) == pytest.approx(1 / 40)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_rate_is_defined_for_any_length_of_run(schedule):
    for max_steps in (1, 2, 5):
        config = OptimConfig(warmup_steps=3, schedule=schedule)
        assert all(0 <= learning_rate(step, config, max_steps=max_steps) <= 1 for step in range(10))


def test_decay_is_on_matrices_alone():
    model = make_model()
    optimizer = make_optimizer(model, OptimConfig(weight_decay=0.3))
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert len(decay) == len(list(model.parameters()))
    for name, parameter in model.named_parameters():
        assert decay[id(parameter)] == (0.3 if parameter.dim() == 2 else 0.0), name


def test_state_put_back_continues_to_the_same_bits():
    model = make_model()
    optimizer = make_optimizer(model, OptimConfig())
    take_steps(model, optimizer, 0, 3)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    tensors = {name: value.clone() for name, value in optimizer_tensors(model, optimizer).items()}
    take_steps(model, optimizer, 3, 3)

    other = make_model()
    other.load_state_dict(weights)
    again = make_optimizer(other, OptimConfig())
    prime(other, again)
    load_optimizer_tensors(other, again, tensors)
    take_steps(other, again, 3, 3)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values()))
    state, state_again = optimizer_tensors(model, optimizer), optimizer_tensors(other, again)
    assert state.keys() == state_again.keys()
    assert all(torch.equal(state[name], state_again[name]) for name in state)


def test_without_its_state_it_does_not():
    model = make_model()
    optimizer = make_optimizer(model, OptimConfig())
    take_steps(model, optimizer, 0, 3)
    other = make_model()
    other.load_state_dict(model.state_dict())
    take_steps(model, optimizer, 3, 3)
    take_steps(other, make_optimizer(other, OptimConfig()), 3, 3)
    assert not torch.equal(model.token_embedding.weight, other.token_embedding.weight)


def test_priming_moves_no_weight():
    model = make_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = make_optimizer(model, OptimConfig())
    prime(model, optimizer)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert len(optimizer_tensors(model, optimizer)) == 3 * len(before)
    assert all(p.grad is None for p in model.parameters())
