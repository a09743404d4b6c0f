"""Each optimizer does what its paper says, and its state survives as named tensors."""

import numpy as np
import pytest
import torch
from optimizer_reference import ReferenceOptimizer

from chargpt.config import OptimConfig
from chargpt.model import GPT, GPTConfig
from chargpt.training.optimizers import OPTIMIZERS, AdamW, Muon, make_optimizer, orthogonalised
from chargpt.training.weights import FlatWeights

NAMES = ("adamw", "muon")


def make_weights(precision: torch.dtype = torch.float32) -> FlatWeights:
    torch.manual_seed(0)
    return FlatWeights(GPT(GPTConfig(n_layer=2, n_head=2, n_embd=16, block_size=8, bias=True), 7), precision)


def take_steps(weights: FlatWeights, optimizer: AdamW | Muon, first: int, count: int, *, rate: float = 1e-2) -> None:
    for step in range(first, first + count):
        idx = torch.randint(7, (4, 9), generator=torch.Generator().manual_seed(step))
        weights.add_gradient(weights.working(idx[:, :-1], idx[:, 1:]), begins=True)
        optimizer.step(rate)
        weights.refresh()


@pytest.mark.parametrize("name", NAMES)
def test_the_pull_towards_the_first_weights_is_on_all_of_them(name):
    weights = make_weights()
    first = weights.vector.clone()
    optimizer = make_optimizer(weights, OptimConfig(name=name, weight_decay=0.0, start_decay=3.0))
    weights.vector += 1.0
    optimizer.step(0.1)  # with no gradient, the decay is all that moves them
    torch.testing.assert_close(weights.vector, first + 0.7)
    optimizer.step(10.0)  # it never goes beyond them
    torch.testing.assert_close(weights.vector, first)
    take_steps(weights, optimizer, 0, 1, rate=10.0)  # and does not undo the last update
    assert not torch.allclose(weights.vector, first, atol=1e-4)


def drawn_gradients(weights: FlatWeights, steps: int) -> list[torch.Tensor]:
    """Gradients of very different sizes: 1e-10 is far below AdamW's epsilon."""
    generator = torch.Generator().manual_seed(5)
    size = weights.vector.shape
    return [torch.randn(size, generator=generator) * 10 ** -(10 * torch.rand(size, generator=generator)) for _ in range(steps)]


def after_steps(config: OptimConfig, gradients: list[torch.Tensor], rates: list[float]) -> dict[str, np.ndarray]:
    """The parameters after steps with given gradients."""
    weights = make_weights()
    optimizer = make_optimizer(weights, config)
    for gradient, rate in zip(gradients, rates):
        weights.gradient.copy_(gradient)
        optimizer.step(rate)
    return {key: value.detach().numpy() for key, value in weights.model.named_parameters()}


def after_reference_steps(
    config: OptimConfig, gradients: list[torch.Tensor], rates: list[float], **changes: object
) -> dict[str, np.ndarray]:
    weights = make_weights()
    values = {key: value.detach().numpy() for key, value in weights.model.named_parameters()}
    settings = {"betas": config.betas, "momentum": config.momentum, "decay": config.weight_decay, **changes}
    reference = ReferenceOptimizer(values, name=config.name, **settings)
    for gradient, rate in zip(gradients, rates):
        slopes = {key: gradient[span].numpy().reshape(values[key].shape) for key, span in weights.spans.items()}
        reference.step({key: slope.astype(np.float64) for key, slope in slopes.items()}, rate)
    return reference.values


def largest_error(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> float:
    assert found.keys() == expected.keys()
    return max(np.abs(found[key] - expected[key]).max() for key in found)


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("name", NAMES)
def test_steps_are_those_of_the_formulas_in_float64(name, steps):
    """Momentum, bias correction, epsilon, decay, orthogonalisation and its scale: every parameter, to float32's rounding."""
    config = OptimConfig(name=name, weight_decay=0.3, betas=(0.8, 0.95), momentum=0.9)
    gradients, rates = drawn_gradients(make_weights(), steps), [0.02, 0.05, 0.01, 0.03, 0.04]
    found, tolerance = after_steps(config, gradients, rates), 3e-6
    assert largest_error(found, after_reference_steps(config, gradients, rates)) < tolerance
    # The comparison notices each part of the formulas.
    wrong = [{"decay": 0.31}, {"betas": (0.81, 0.95)}, {"betas": (0.8, 0.94)}]
    wrong += [{"momentum": 0.89}, {"nesterov": False}] if name == "muon" else []
    for change in wrong if steps > 1 else wrong[:1]:  # the direction of a first step does not depend on the momentum
        assert largest_error(found, after_reference_steps(config, gradients, rates, **change)) > 10 * tolerance, change


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 64, 16), (2, 16, 64)])
def test_orthogonalised_matrices_have_singular_values_near_one(shape, precision):
    values = torch.linalg.svdvals(orthogonalised(torch.randn(shape, generator=torch.Generator().manual_seed(1)), precision))
    assert 0.3 < values.min() and values.max() < 1.35 and 0.7 < values.median() < 1.2


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_state_put_back_continues_to_the_same_bits(name, precision):
    weights = make_weights(precision)
    config = OptimConfig(name=name, start_decay=5.0, average_fraction=0.5)  # its state has the first weights, and a mean
    optimizer = make_optimizer(weights, config)
    take_steps(weights, optimizer, 0, 3)
    saved = {key: value.clone() for key, value in weights.model.state_dict().items()}
    state = {key: value.clone() for key, value in optimizer.tensors().items()}
    take_steps(weights, optimizer, 3, 3)

    again = make_weights(precision)
    again.model.load_state_dict(saved)
    again.refresh()
    other = make_optimizer(again, config)
    other.load(state)
    take_steps(again, other, 3, 3)
    assert torch.equal(weights.vector, again.vector)
    assert all(torch.equal(value, other.tensors()[key]) for key, value in optimizer.tensors().items())
    fresh = make_weights(precision)
    fresh.model.load_state_dict(saved)
    fresh.refresh()
    take_steps(fresh, make_optimizer(fresh, config), 3, 3)
    assert not torch.equal(weights.vector, fresh.vector)  # without its state it does not
