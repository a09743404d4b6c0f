"""Optimizers: AdamW, and Muon for the matrices inside the blocks with AdamW for the rest.

An optimizer updates the vector of a `FlatWeights` from its gradient. It has a method `update` and its state as `states`. A new
one is a class with these, an entry in `OPTIMIZERS`, and its name among the types of `OptimConfig.name`. planning/memory.py
expects two vectors of state (BYTES_PER_PARAMETER), and one more for each of `optim.start_decay` and `optim.average_fraction`.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from chargpt.config import OptimConfig
from chargpt.kernels.step import KernelMuon
from chargpt.training.weights import FlatWeights

# The coefficients of three odd quintics. Applied in turn, they bring every singular value from 0.01 to 1 to between 0.73 and
# 1.27. Each is the one nearest to 1 on the range that the previous one leaves (as in Polar Express, arXiv 2505.16932). They
# learn as well as the five Newton-Schulz steps of the Muon repository, and cost 40 % less.
NEWTON_SCHULZ = ((8.0934, -23.6204, 17.4462), (3.6366, -2.7219, 0.5365), (2.6613, -1.9772, 0.4526))
# In float16, small gradients become 0, so the loss is multiplied by a scale (arXiv 1710.03740): the first one, which is halved
# when a gradient overflows and doubled after so many steps without an overflow. Then the name of both in a checkpoint.
FIRST_SCALE, DOUBLED_AFTER, LOSS_SCALE = 2.0**16, 2000, "loss_scale"


class State(NamedTuple):
    """A vector of the state, for a span of the vector of weights."""

    quantity: str
    span: slice
    vector: Tensor


class Optimizer:
    """What optimizers have in common: their state by name, a decay towards the first weights, and a mean of the last ones.

    A checkpoint holds the `states` and the number of steps, and nothing else of an optimizer. A resumed run would
    silently differ if an update used more that changes from step to step. tests/training/test_optimizers.py resumes every kind.
    """

    def __init__(self, weights: FlatWeights, config: OptimConfig) -> None:
        """The first weights and the mean begin as copies of the weights of now, until `load` brings back others."""
        self._weights, self._start_decay = weights, config.start_decay
        self._count = torch.zeros((), device=weights.vector.device)  # steps taken
        self.scaling: Tensor | None = None  # the scale of the loss, and the steps since it changed
        if weights.precision == torch.float16:
            self.scaling = torch.tensor([FIRST_SCALE, 0.0], device=weights.vector.device)
        self.states, whole = list[State](), slice(0, len(weights.vector))
        self._first = self._state("start", whole, weights.vector.clone()) if config.start_decay else None
        # Of the last weights; the trainer moves it.
        self.mean = self._state("average", whole, weights.vector.clone()) if config.average_fraction else None

    def _state(self, quantity: str, span: slice, vector: Tensor) -> Tensor:
        self.states.append(State(quantity, span, vector))
        return vector

    def _zeros(self, quantity: str, span: slice) -> Tensor:
        """A new state of zeros."""
        return self._state(quantity, span, torch.zeros_like(self._weights.vector[span]))

    def step(self, rate: float | Tensor, skips: Tensor | None = None) -> None:
        """One update at learning rate `rate`. On a GPU, `skips` is 1 where it must change nothing, and 0 otherwise. With
        `start_decay`, the weights first move towards the first ones (L2-SP, arXiv 1802.01483), as weight decay does."""
        if self._first is not None:
            amount = rate * self._start_decay * _kept(skips)
            self._weights.vector.lerp_(self._first, amount.clamp(max=1.0) if isinstance(amount, Tensor) else min(1.0, amount))
        self.update(rate, skips)

    def update(self, rate: float | Tensor, skips: Tensor | None) -> None:
        """Update the weights by their gradient, as `step`."""
        raise NotImplementedError

    def rescale(self, overflows: Tensor) -> None:
        """Halve the scale of the loss if the gradient `overflows` (1), or double it after DOUBLED_AFTER steps without (0)."""
        assert self.scaling is not None
        scale, steps = self.scaling
        steps.add_(1).mul_(1 - overflows)
        doubles = (steps >= DOUBLED_AFTER).float()
        scale.mul_((1 + doubles) / (1 + overflows)).clamp_(1.0, FIRST_SCALE)
        steps.mul_(1 - doubles)

    def vectors(self) -> list[Tensor]:
        """All of the state."""
        scaling = [] if self.scaling is None else [self.scaling]
        return [self._count, *scaling, *(state.vector for state in self.states)]

    def tensors(self) -> dict[str, Tensor]:
        """Views of the state as `parameter/quantity`, in the shape of each parameter, the number of steps, and LOSS_SCALE."""
        found = {"step": self._count} | ({} if self.scaling is None else {LOSS_SCALE: self.scaling})
        for quantity, span, vector in self.states:
            for name, parameter in self._weights.model.named_parameters():
                place = self._weights.spans[name]
                if span.start <= place.start < span.stop:
                    part = vector[place.start - span.start : place.stop - span.start]
                    found[f"{name}/{quantity}"] = part.view(parameter.shape)
        return found

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the state that another optimizer of this kind gave as `tensors()`."""
        suitable = self.suitable(tensors)
        for name, own in self.tensors().items():
            own.copy_(suitable[name])

    def suitable(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """`tensors` of a checkpoint, of any precision: with the LOSS_SCALE of now in place of a missing one."""
        scaling = {} if self.scaling is None else {LOSS_SCALE: tensors.get(LOSS_SCALE, self.scaling)}
        return {name: tensor for name, tensor in tensors.items() if name != LOSS_SCALE} | scaling


class AdamW(Optimizer):
    """AdamW (arXiv 1711.05101) with weight decay on matrices and embeddings alone. All state starts at zero."""

    def __init__(self, weights: FlatWeights, config: OptimConfig, *, start: int = 0) -> None:
        """Updates the part of the vector from `start` on."""
        super().__init__(weights, config)
        self._betas = config.betas
        span, decayed = slice(start, len(weights.vector)), max(start, weights.decayed.stop)
        means = [self._zeros(name, span) for name in ("exp_avg", "exp_avg_sq")]
        vectors = [weights.vector[span], weights.gradient[span], *means]
        parts = ((slice(0, decayed - start), config.weight_decay), (slice(decayed - start, None), 0.0))
        self._parts = [([[vector[part]] for vector in vectors], decay) for part, decay in parts if len(means[0][part])]

    @torch.no_grad()
    def update(self, rate: float | Tensor, skips: Tensor | None) -> None:
        # The functional form: torch.optim.AdamW imports torch's compiler, which takes longer than importing torch itself.
        for (vector, gradient, mean, square), decay in self._parts:
            adamw(
                vector,
                gradient,
                mean,
                square,
                [],
                [self._count.clone()],
                fused=True,
                found_inf=skips,
                amsgrad=False,
                maximize=False,
                beta1=self._betas[0],
                beta2=self._betas[1],
                lr=rate,
                weight_decay=decay,
                eps=1e-8,
            )
        self._count += _kept(skips)


class Muon(Optimizer):
    """Muon for the matrices inside the blocks, with q, k and v each on its own; AdamW for embeddings, norms and biases. Muon:
    Keller Jordan et al., 2024. Its momentum is Nesterov's, and starts at zero."""

    def __init__(self, weights: FlatWeights, config: OptimConfig) -> None:
        super().__init__(weights, config)
        self._beta, self._decay, self._stacks = config.momentum, config.weight_decay, weights.stacks
        self._matrices = slice(0, self._stacks[-1][0].stop if self._stacks else 0)
        without_copies = dataclasses.replace(config, start_decay=0.0, average_fraction=0.0)
        self._adamw = AdamW(weights, without_copies, start=self._matrices.stop)
        self._count, self.states = self._adamw._count, self.states + self._adamw.states
        self._momentum = self._zeros("momentum", self._matrices)
        parts = (config, NEWTON_SCHULZ, self._stacks, weights.gradient, self._momentum, weights.vector)
        self._kernel = None if weights.step is None else KernelMuon(weights.step, *parts)

    @torch.no_grad()
    def update(self, rate: float | Tensor, skips: Tensor | None) -> None:
        self._adamw.update(rate, skips)
        if self._kernel is not None:
            return self._kernel.update(float(rate))
        kept, gradient, momentum = _kept(skips), self._weights.gradient[self._matrices], self._momentum
        if skips is not None:
            gradient.masked_fill_(skips.bool(), 0.0)
        momentum.lerp_(gradient, (1 - self._beta) * kept)
        nesterov, moves = gradient.lerp(momentum, self._beta), rate * kept
        self._weights.vector[self._matrices].mul_(1 - moves * self._decay)
        for span, rows, columns in self._stacks:
            update = orthogonalised(nesterov[span].view(-1, rows, columns), self._weights.precision)
            # The update has the size that AdamW's would have, so that both use the same rate (arXiv 2502.16982).
            scale = 0.2 * math.sqrt(max(rows, columns))
            matrices = self._weights.vector[span].view(update.shape)
            if isinstance(moves, Tensor):
                matrices.addcmul_(update, moves, value=-scale)
            else:
                matrices.add_(update, alpha=-moves * scale)


def _kept(skips: Tensor | None) -> float | Tensor:
    """The share of an update that is made."""
    return 1.0 if skips is None else 1 - skips


def orthogonalised(matrices: Tensor, precision: torch.dtype) -> Tensor:
    """Approximately the orthogonal matrices nearest to a stack (n, rows, columns).

    Singular values end up between 0.7 and 1.3, except those below a hundredth of the matrix's norm. Newton-Schulz iterations
    run on all matrices at once; bfloat16 is precise enough for them.
    """
    wide = matrices.size(1) <= matrices.size(2)
    x = (matrices if wide else matrices.transpose(1, 2)).to(precision)
    x = x / x.norm(dim=(1, 2), keepdim=True).mul(1.02).clamp(min=1e-7)  # rounding must not bring a singular value above 1
    for a, b, c in NEWTON_SCHULZ:
        gram = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x if wide else x.transpose(1, 2)).float()


@dataclass(frozen=True, kw_only=True)
class OptimizerKind:
    """An optimizer, and what the choice of settings knows of it. docs/lab/choice.md has the experiments. No figure has a
    default: those of one optimizer are wrong for another."""

    label: str
    make: Callable[..., Optimizer]
    model: Mapping[str, object]  # settings of the model that are chosen with it; the figures below hold for them
    rates: tuple[tuple[float, float], ...]  # the highest learning rate for up to this many parameters in the blocks
    # The highest learning rate of a training that begins with other weights: for a short text, and for a long one or one of
    # another kind.
    start_rates: tuple[float, float]
    useful_parameters: float  # for each character of the text; more have no use
    # From a long text, a model learns as much from a character as with Muon and rotary positions from so much of one.
    sees: float
    short_contexts: tuple[tuple[int, int], ...]  # the context for texts of up to this many characters
    is_context_by_width: bool  # the context of a longer text depends on the width alone
    small_dropout: float  # the highest dropout of a small model


OPTIMIZERS = {
    # The default. A short text teaches few learned positions.
    "adamw": OptimizerKind(
        label="AdamW",
        make=AdamW,
        model={"positions": "learned", "bias": False},
        rates=((2e6, 3e-3), (math.inf, 2e-3)),
        start_rates=(3e-4, 3e-4),
        useful_parameters=10,
        sees=0.27,
        short_contexts=((15_000, 16), (25_000, 32), (60_000, 64)),
        is_context_by_width=True,
        small_dropout=0.1,
    ),
    "muon": OptimizerKind(
        label="Muon",
        make=Muon,
        model={"positions": "rotary", "bias": True},
        rates=((1e6, 8e-3), (3e6, 6e-3), (1e7, 4e-3), (math.inf, 3e-3)),
        start_rates=(5e-4, 2e-3),
        useful_parameters=math.inf,
        sees=1.0,
        short_contexts=(),
        is_context_by_width=False,
        small_dropout=1.0,
    ),
}
# What --minutes and a training from other weights choose, since it learns most; and what a training without --minutes chooses.
WITH_MINUTES, WITHOUT_MINUTES = "muon", "adamw"


def make_optimizer(weights: FlatWeights, config: OptimConfig) -> Optimizer:
    """The optimizer that `config.name` names."""
    return OPTIMIZERS[config.name].make(weights, config)
