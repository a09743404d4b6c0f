"""How weights move: AdamW, or Muon for the hidden matrices beside it, and the learning rate as a function of the step."""

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from chargpt.config import OptimConfig
from chargpt.training.weights import Weights

# The kinds of parameters, in the order in which they lie in a Weights vector. Of the first three, every matrix has the
# same shape, so that they are a stack as they lie.
SQUARE, UP, DOWN, EMBEDDING, VECTOR = range(5)

# Odd quintics that, one after the other, bring every singular value from 0.01 to 1 to between 0.73 and 1.27: each is the one
# nearest to 1 on the range that the one before leaves (as in Polar Express, arXiv 2505.16932). Three of them learn as well as
# the five of the Muon repository, and cost 40 % less.
NEWTON_SCHULZ = ((8.0934, -23.6204, 17.4462), (3.6366, -2.7219, 0.5365), (2.6613, -1.9772, 0.4526))


def kind_of(name: str, parameter: nn.Parameter) -> int:
    """Which kind of parameter of a GPT this is."""
    if parameter.dim() < 2:
        return VECTOR
    if "embedding" in name:
        return EMBEDDING
    return {"up": UP, "down": DOWN}.get(name.split(".")[-2], SQUARE)


def learning_rate(step: int, config: OptimConfig, *, max_steps: int) -> float:
    """The rate of step `step`, counted from 0: linear warm-up, of half the run at most, then the schedule down to `final_fraction`
    at the end.

    `linear` holds the peak until the last `decay_fraction` of the run and then falls in a straight line;
    `cosine` falls along half a cosine from the end of warm-up.
    """
    warmup = min(config.warmup_steps, max_steps // 2)
    if step < warmup:
        return config.learning_rate * (step + 1) / (warmup + 1)
    if config.schedule == "linear":
        start = max(warmup, max_steps * (1 - config.decay_fraction))
        remaining = 1 - max(0.0, step - start) / max(1.0, max_steps - start)
    else:
        done = (step - warmup) / max(1, max_steps - warmup)
        remaining = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
    return config.learning_rate * (config.final_fraction + (1 - config.final_fraction) * max(0.0, remaining))


class Optimizer:
    """Updates the vector of `weights` from its gradient. Weight decay is on matrices alone.

    `adamw` is AdamW (arXiv 1711.05101) for everything; `muon` is Muon for the matrices inside the blocks, q, k and v each by
    itself, and AdamW for embeddings, biases and norms. All state starts at zero.
    """

    def __init__(self, weights: Weights, config: OptimConfig) -> None:
        self.weights, self.config = weights, config
        hidden = weights.of_kind(DOWN).stop if config.name == "muon" else 0
        first_vector = weights.of_kind(EMBEDDING).stop
        self.momentum = torch.zeros_like(weights.vector[:hidden])
        self._adam_span = slice(hidden, len(weights.vector))
        self._moments = {name: torch.zeros_like(weights.vector[hidden:]) for name in ("exp_avg", "exp_avg_sq")}
        self._count = torch.zeros((), device=weights.vector.device)  # of the steps taken
        decayed = first_vector - hidden
        self._adam_parts = ((slice(0, decayed), config.weight_decay), (slice(decayed, None), 0.0))

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One update at learning rate `rate`."""
        self._adam_step(rate)
        if len(self.momentum):
            self._muon_step(rate)
        self.weights.refresh()

    def _adam_step(self, rate: float) -> None:
        # The functional form: torch.optim.AdamW would import torch's compiler, which takes longer than torch itself.
        vector, gradient = self.weights.vector[self._adam_span], self.weights.gradient[self._adam_span]
        beta1, beta2 = self.config.betas
        counts = [self._count, self._count.clone()]
        for (part, decay), count in zip(self._adam_parts, counts):
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

    def _muon_step(self, rate: float) -> None:
        beta = self.config.momentum
        gradient = self.weights.gradient[: len(self.momentum)]
        self.momentum.lerp_(gradient, 1 - beta)
        nesterov = gradient.lerp(self.momentum, beta)
        for kind in (SQUARE, UP, DOWN):
            span = self.weights.of_kind(kind)
            rows, columns = self._matrix_shape(kind)
            update = orthogonalised(nesterov[span].view(-1, rows, columns), self.weights.precision)
            # An update as large as AdamW's would be, so that both take the same rate (arXiv 2502.16982).
            scale = 0.2 * math.sqrt(max(rows, columns))
            matrices = self.weights.vector[span].view(-1, rows, columns)
            matrices.mul_(1 - rate * self.config.weight_decay).add_(update, alpha=-rate * scale)

    def _matrix_shape(self, kind: int) -> tuple[int, int]:
        width = self.weights.model.config.n_embd
        return {SQUARE: (width, width), UP: (4 * width, width), DOWN: (width, 4 * width)}[kind]

    def tensors(self) -> dict[str, Tensor]:
        """The state as named tensors, views of it: `parameter/quantity`, and the count of steps."""
        shapes = {name: parameter.shape for name, parameter in self.weights.model.named_parameters()}
        found = {"step": self._count}
        moments = [(slice(0, len(self.momentum)), {"momentum": self.momentum}), (self._adam_span, self._moments)]
        for where, vectors in moments:
            for name, span in self._named_within(where):
                for quantity, vector in vectors.items():
                    found[f"{name}/{quantity}"] = vector[span].view(shapes[name])
        return found

    def _named_within(self, where: slice) -> Iterator[tuple[str, slice]]:
        """Names of the parameters that lie in a part of the vector, and their places in that part."""
        for name, span in self.weights.spans.items():
            if where.start <= span.start < where.stop:
                yield name, slice(span.start - where.start, span.stop - where.start)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over the state that another optimizer of this kind gave as `tensors()`."""
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])


def orthogonalised(matrices: Tensor, precision: torch.dtype) -> Tensor:
    """The orthogonal matrices nearest to a stack (n, rows, columns), roughly: singular values come out between 0.7 and 1.3, but for
    those below a hundredth of the matrix's norm.

    Newton-Schulz iterations on all matrices at once; bfloat16 is precise enough for them. Muon: Keller Jordan et al., 2024.
    """
    wide = matrices.size(1) <= matrices.size(2)
    x = (matrices if wide else matrices.transpose(1, 2)).to(precision)
    x = x / x.norm(dim=(1, 2), keepdim=True).mul(1.02).clamp(min=1e-7)  # a rounding must not bring any above 1
    for a, b, c in NEWTON_SCHULZ:
        gram = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x if wide else x.transpose(1, 2)).float()
