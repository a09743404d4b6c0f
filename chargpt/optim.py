"""How weights move: parameter groups, AdamW, and the learning rate as a function of the step."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from chargpt.config import OptimConfig


def learning_rate(step: int, config: OptimConfig, *, max_steps: int) -> float:
    """The rate of step `step`, counted from 0: linear warm-up, then the schedule down to `final_fraction` at the end.

    `linear` holds the peak until the last `decay_fraction` of the run and then falls in a straight line;
    `cosine` falls along half a cosine from the end of warm-up.
    """
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / (config.warmup_steps + 1)
    if config.schedule == "linear":
        start = max(config.warmup_steps, max_steps * (1 - config.decay_fraction))
        remaining = 1 - max(0.0, step - start) / max(1.0, max_steps - start)
    else:
        done = (step - config.warmup_steps) / max(1, max_steps - config.warmup_steps)
        remaining = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    return config.learning_rate * (config.final_fraction + (1 - config.final_fraction) * max(0.0, remaining))


def make_optimizer(model: nn.Module, config: OptimConfig) -> torch.optim.Optimizer:
    """AdamW over all parameters; weight decay on the matrices alone."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.betas, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as named tensors, `parameter/quantity`, ready for a checkpoint."""
    return {
        f"{name}/{quantity}": value
        for name, parameter in model.named_parameters()
        for quantity, value in optimizer.state.get(parameter, {}).items()
    }


def prime(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Give a new optimizer the state that its first step creates, to be overwritten; no weight moves."""
    rates = [group["lr"] for group in optimizer.param_groups]
    set_learning_rate(optimizer, 0.0)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates):
        group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)


def load_optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Overwrite the state of a primed optimizer with what `optimizer_tensors` gave for another of its kind."""
    for key, value in optimizer_tensors(model, optimizer).items():
        value.copy_(tensors[key])
