"""How weights move: parameter groups, AdamW, and the learning rate as a function of the step."""

import math

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


def load_optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave. Raises ValueError naming the first tensor that does not belong."""
    parameters = dict(model.named_parameters())
    for key, value in tensors.items():
        name, _, quantity = key.rpartition("/")
        if name not in parameters:
            raise ValueError(f"optimizer state {key!r} belongs to no parameter of this model")
        parameter = parameters[name]
        if value.dim() and value.shape != parameter.shape:
            raise ValueError(f"optimizer state {key!r} has shape {tuple(value.shape)}, its parameter {tuple(parameter.shape)}")
        # Step counts stay where the optimizer keeps them: on the CPU, unless it is capturable.
        device = parameter.device if value.dim() else "cpu"
        optimizer.state[parameter][quantity] = value.to(device)
