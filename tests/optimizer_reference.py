"""AdamW, Muon and clipping in float64, one tensor at a time, from the formulas of the papers."""

import numpy as np

from chargpt.training.optimizers import NEWTON_SCHULZ

Array = np.ndarray


class ReferenceAdamW:
    """Algorithm 2 of arXiv 1711.05101 for one tensor; the decay is multiplied by the rate, as in PyTorch."""

    def __init__(self, *, betas: tuple[float, float], decay: float) -> None:
        self.betas, self.decay, self.steps = betas, decay, 0
        self.m = self.v = 0.0

    def step(self, value: Array, gradient: Array, rate: float) -> Array:
        """The tensor after one update."""
        beta1, beta2 = self.betas
        self.steps += 1
        self.m = beta1 * self.m + (1 - beta1) * gradient
        self.v = beta2 * self.v + (1 - beta2) * gradient**2
        m_hat, v_hat = self.m / (1 - beta1**self.steps), self.v / (1 - beta2**self.steps)
        return value - rate * (m_hat / (np.sqrt(v_hat) + 1e-8) + self.decay * value)


class ReferenceMuon:
    """Muon (Keller Jordan et al., 2024) for one matrix, with the update scale of arXiv 2502.16982."""

    def __init__(self, *, momentum: float, decay: float, nesterov: bool = True) -> None:
        self.momentum, self.decay, self.nesterov = momentum, decay, nesterov
        self.average = 0.0

    def step(self, value: Array, gradient: Array, rate: float) -> Array:
        """The matrix after one update."""
        self.average = self.momentum * self.average + (1 - self.momentum) * gradient
        direction = self.momentum * self.average + (1 - self.momentum) * gradient if self.nesterov else self.average
        update = 0.2 * max(value.shape) ** 0.5 * orthogonalised_by_svd(direction)
        return value - rate * (update + self.decay * value)


def quintics(values: Array) -> Array:
    """What the Newton-Schulz iterations make of singular values."""
    for a, b, c in NEWTON_SCHULZ:
        values = a * values + b * values**3 + c * values**5
    return values


def orthogonalised_by_svd(matrix: Array) -> Array:
    """The result of the iterations without rounding: the same singular vectors, and `quintics` of the singular values."""
    U, S, Vh = np.linalg.svd(matrix, full_matrices=False)
    return U * quintics(S / (1.02 * np.linalg.norm(matrix))) @ Vh


def clipped(gradients: dict[str, Array], limit: float) -> dict[str, Array]:
    """Gradients scaled so that the norm of all of them together is at most `limit` (arXiv 1211.5063)."""
    norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
    return {name: gradient * min(1.0, limit / norm) for name, gradient in gradients.items()}


class ReferenceOptimizer:
    """AdamW or Muon for all parameters of a GPT, by name: which tensor is updated by what, and which ones decay."""

    def __init__(self, values: dict[str, Array], *, name: str, betas, momentum: float, decay: float, nesterov: bool = True):
        self.values = {key: value.astype(np.float64) for key, value in values.items()}
        self.parts: dict[str, list] = {}
        for key, value in values.items():
            matrix = value.ndim == 2
            if name == "muon" and matrix and "embedding" not in key:
                pieces = 3 if key.endswith("qkv.weight") else 1  # queries, keys and values are matrices of their own
                self.parts[key] = [ReferenceMuon(momentum=momentum, decay=decay, nesterov=nesterov) for _ in range(pieces)]
            else:
                self.parts[key] = [ReferenceAdamW(betas=betas, decay=decay if matrix else 0.0)]

    def step(self, gradients: dict[str, Array], rate: float) -> None:
        """One update of every tensor."""
        for key, parts in self.parts.items():
            values, slopes = (np.split(x[key], len(parts)) for x in (self.values, gradients))
            self.values[key] = np.concatenate([p.step(v, g, rate) for p, v, g in zip(parts, values, slopes)])
