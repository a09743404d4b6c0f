"""Optimizers: AdamW, and Muon for the matrices inside the blocks with AdamW for the rest.

An optimizer updates the vector of a `FlatWeights` from its gradient. It has three methods: `step(rate)`, `tensors()`, which
gives its state by name, and `load(tensors)`. A new one is a class with these methods, an entry in `OPTIMIZERS`, and
a name in `OptimConfig`.
"""

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from chargpt.config import OptimConfig
from chargpt.training.weights import DOWN, EMBEDDING, SQUARE, UP, FlatWeights

# The coefficients of three odd quintics. Applied in turn, they bring every singular value from 0.01 to 1 to between 0.73 and
# 1.27. Each is the one nearest to 1 on the range that the previous one leaves (as in Polar Express, arXiv 2505.16932). They
# learn as well as the five Newton-Schulz steps of the Muon repository, and cost 40 % less.
NEWTON_SCHULZ = ((8.0934, -23.6204, 17.4462), (3.6366, -2.7219, 0.5365), (2.6613, -1.9772, 0.4526))


class AdamW:
    """AdamW (arXiv 1711.05101) with weight decay on matrices and embeddings alone. All state starts at zero."""

    def __init__(self, weights: FlatWeights, config: OptimConfig, *, start: int = 0) -> None:
        """Updates the part of the vector from `start` on."""
        self._weights, self._betas = weights, config.betas
        self._span = slice(start, len(weights.vector))
        self._moments = {name: torch.zeros_like(weights.vector[self._span]) for name in ("exp_avg", "exp_avg_sq")}
        self._count = torch.zeros((), device=weights.vector.device)  # steps taken
        decayed = weights.of_kind(EMBEDDING).stop - start  # norms and biases come last
        self._parts = ((slice(0, decayed), config.weight_decay), (slice(decayed, None), 0.0))

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One update at learning rate `rate`."""
        # The functional form: torch.optim.AdamW imports torch's compiler, which takes longer than importing torch itself.
        vector, gradient = self._weights.vector[self._span], self._weights.gradient[self._span]
        beta1, beta2 = self._betas
        counts = [self._count, self._count.clone()]
        for (part, decay), count in zip(self._parts, counts):
            moments = [[self._moments[name][part]] for name in ("exp_avg", "exp_avg_sq")]
            adamw(
                [vector[part]],
                [gradient[part]],
                *moments,
                [],
                [count],
                fused=True,
                amsgrad=False,
                maximize=False,
                beta1=beta1,
                beta2=beta2,
                lr=rate,
                weight_decay=decay,
                eps=1e-8,
            )

    def tensors(self) -> dict[str, Tensor]:
        """The state, views of it, as `parameter/quantity`, and the number of steps."""
        return {"step": self._count, **_named(self._weights, self._span, self._moments)}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the state that another AdamW gave as `tensors()`."""
        _copy(tensors, self.tensors())


class Muon:
    """Muon for the matrices inside the blocks, with q, k and v each on its own; AdamW for embeddings, norms and biases.

    Muon: Keller Jordan et al., 2024. Its momentum is Nesterov's, and starts at zero.
    """

    def __init__(self, weights: FlatWeights, config: OptimConfig) -> None:
        self._weights, self._beta, self._decay = weights, config.momentum, config.weight_decay
        hidden = weights.of_kind(DOWN).stop
        self._momentum = torch.zeros_like(weights.vector[:hidden])
        self._adamw = AdamW(weights, config, start=hidden)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One update at learning rate `rate`."""
        self._adamw.step(rate)
        gradient = self._weights.gradient[: len(self._momentum)]
        self._momentum.lerp_(gradient, 1 - self._beta)
        nesterov = gradient.lerp(self._momentum, self._beta)
        width = self._weights.model.config.n_embd
        for kind, rows, columns in ((SQUARE, width, width), (UP, 4 * width, width), (DOWN, width, 4 * width)):
            span = self._weights.of_kind(kind)
            update = orthogonalised(nesterov[span].view(-1, rows, columns), self._weights.precision)
            # The update has the size that AdamW's would have, so that both use the same rate (arXiv 2502.16982).
            scale = 0.2 * math.sqrt(max(rows, columns))
            matrices = self._weights.vector[span].view(-1, rows, columns)
            matrices.mul_(1 - rate * self._decay).add_(update, alpha=-rate * scale)

    def tensors(self) -> dict[str, Tensor]:
        """The state, views of it, as `parameter/quantity`, and the number of steps."""
        momentum = _named(self._weights, slice(0, len(self._momentum)), {"momentum": self._momentum})
        return {**self._adamw.tensors(), **momentum}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the state that another Muon gave as `tensors()`."""
        _copy(tensors, self.tensors())


OPTIMIZERS = {"adamw": AdamW, "muon": Muon}


def make_optimizer(weights: FlatWeights, config: OptimConfig) -> AdamW | Muon:
    """The optimizer that `config.name` names."""
    return OPTIMIZERS[config.name](weights, config)


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


def _named(weights: FlatWeights, part: slice, vectors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Views of `vectors`, each as long as `part` of the weights, in the shape of each parameter in that part."""
    shapes = {name: parameter.shape for name, parameter in weights.model.named_parameters()}
    return {
        f"{name}/{quantity}": vector[span].view(shapes[name])
        for name, span in _spans_within(weights, part)
        for quantity, vector in vectors.items()
    }


def _spans_within(weights: FlatWeights, part: slice) -> Iterator[tuple[str, slice]]:
    """Names of the parameters in a part of the vector, and where they are in that part."""
    for name, span in weights.spans.items():
        if part.start <= span.start < part.stop:
            yield name, slice(span.start - part.start, span.stop - part.start)


def _copy(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    for name, tensor in target.items():
        tensor.copy_(source[name])
