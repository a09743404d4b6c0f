"""Optimizers: AdamW, and Muon for the matrices inside the blocks with AdamW for the rest.

An optimizer updates the vector of a `FlatWeights` from its gradient, or the parts of it that this process owns. It has a
method `step(rate)`, the cuts of its `regions`, its state as `shards`, and `rehearse()` if an update has large matrix products.
A new one is a class with these, an entry in `OPTIMIZERS` of optimizer_kinds.py, and its name among the types of
`OptimConfig.name`. planning/memory.py expects two vectors of state (BYTES_PER_PARAMETER), and with `optim.start_decay` a
third one.

With several processes, each updates its own parts and keeps their state alone (ZeRO stage 1, arXiv 1910.02054). Every part is
updated by itself, so that its bits do not depend on the number of processes: torch rounds the last numbers of a call, and
products of another number of matrices, in another way.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from chargpt.config import OptimConfig
from chargpt.parallel.group import Group, cuts_between, even_cuts
from chargpt.training.weights import DOWN, EMBEDDING, SQUARE, UP, FlatWeights

# The coefficients of three odd quintics. Applied in turn, they bring every singular value from 0.01 to 1 to between 0.73 and
# 1.27. Each is the one nearest to 1 on the range that the previous one leaves (as in Polar Express, arXiv 2505.16932). They
# learn as well as the five Newton-Schulz steps of the Muon repository, and cost 40 % less.
NEWTON_SCHULZ = ((8.0934, -23.6204, 17.4462), (3.6366, -2.7219, 0.5365), (2.6613, -1.9772, 0.4526))


# The quantity of a shard that holds the weights with which the run began.
FIRST = "start"


class Shard(NamedTuple):
    """A vector of the state, of which this process has the parts that it owns."""

    quantity: str
    cuts: list[int]  # the positions in the vector of weights that its parts belong to
    own: Tensor


class Optimizer:
    """What optimizers have in common: their state by name, whole, whatever the number of processes.

    A checkpoint holds the `shards` and the number of steps, and nothing else of an optimizer. A resumed run would
    silently differ if an update used more that changes from step to step. tests/training/test_optimizers.py resumes every kind.
    """

    regions: list[list[int]]  # the cuts of each region of the vector of weights; a part has a range in every region
    shards: list[Shard]

    def __init__(self, weights: FlatWeights, group: Group, parts: int) -> None:
        self._weights, self._group = weights, group
        self._count = torch.zeros((), device=weights.vector.device)  # steps taken
        self._own = group.own(parts)

    def _shard(self, quantity: str, cuts: list[int]) -> Shard:
        """State for the owned parts between `cuts`, all zero."""
        own = slice(cuts[self._own.start], cuts[self._own.stop])
        return Shard(quantity, cuts, torch.zeros_like(self._weights.vector[own]))

    def begin(self) -> None:
        """The weights as they are now are those with which the run begins; `load` brings back others."""
        for shard in self.shards:
            if shard.quantity == FIRST:
                shard.own.copy_(self._weights.vector[shard.cuts[self._own.start] : shard.cuts[self._own.stop]])

    def _pull(self, first: Shard, amount: float) -> None:
        """Move the weights of `first` by this share of their distance from what they were (L2-SP, arXiv 1802.01483).

        It comes before an update, as weight decay does, so that the last update stays whole.
        """
        offset = first.cuts[self._own.start]
        for part in self._own:
            start, stop = first.cuts[part], first.cuts[part + 1]
            self._weights.vector[start:stop].lerp_(first.own[start - offset : stop - offset], min(1.0, amount))

    def step(self, rate: float) -> None:
        """One update at learning rate `rate`."""
        raise NotImplementedError

    def rehearse(self) -> None:
        """Compute the large matrix products of an update, if it has any, and discard them: to measure their time."""

    def expected(self) -> dict[str, Tensor]:
        """Tensors of the names, shapes and types of `tensors`; their values mean nothing."""
        return {"step": self._count, **self._named([torch.empty(shard.cuts[-1] - shard.cuts[0]) for shard in self.shards])}

    def tensors(self) -> dict[str, Tensor]:
        """The state as `parameter/quantity`, and the number of steps; of one process, views of it.

        All processes call this together, and the first one gets the state; the others get nothing.
        """
        vectors = [self._group.collect(shard.own, shard.cuts) for shard in self.shards]
        return {"step": self._count, **self._named(vectors)} if self._group.is_first else {}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the state that another optimizer of this kind gave as `tensors()`. The first process's `tensors` count."""
        for name, position, shape, own in self._places():
            if self._group.size > 1:
                whole = tensors[name].contiguous() if self._group.is_first else torch.empty(shape)
                self._group.broadcast(whole.view(-1))
            else:
                whole = tensors[name]
            first, stop = max(0, position), min(len(own), position + whole.numel())
            if first < stop:
                own[first:stop].copy_(whole.reshape(-1)[first - position : stop - position])

    def _places(self) -> Iterator[tuple[str, int, torch.Size, Tensor]]:
        """The name and shape of each tensor of the state, where it begins in the owned part of its vector, and that part."""
        yield "step", 0, self._count.shape, self._count.view(-1)
        shapes = {name: parameter.shape for name, parameter in self._weights.model.named_parameters()}
        for shard in self.shards:
            for name, span in _spans_within(self._weights, slice(shard.cuts[0], shard.cuts[-1])):
                start = shard.cuts[0] + span.start - shard.cuts[self._own.start]
                yield f"{name}/{shard.quantity}", start, shapes[name], shard.own

    def _named(self, vectors: Sequence[Tensor | None]) -> dict[str, Tensor]:
        """Views of the whole vector of each shard, in the shape of each parameter."""
        shapes = {name: parameter.shape for name, parameter in self._weights.model.named_parameters()}
        return {
            f"{name}/{shard.quantity}": vector[span].view(shapes[name])
            for shard, vector in zip(self.shards, vectors)
            if vector is not None
            for name, span in _spans_within(self._weights, slice(shard.cuts[0], shard.cuts[-1]))
        }


class AdamW(Optimizer):
    """AdamW (arXiv 1711.05101) with weight decay on matrices and embeddings alone. All state starts at zero."""

    def __init__(
        self, weights: FlatWeights, config: OptimConfig, *, start: int = 0, group: Group = Group(), parts: int = 1
    ) -> None:
        """Updates the part of the vector from `start` on."""
        super().__init__(weights, group, parts)
        self._betas = config.betas
        cuts = even_cuts(start, len(weights.vector), parts)
        self.regions = [cuts]
        self._averages = [self._shard(name, cuts) for name in ("exp_avg", "exp_avg_sq")]
        self._start_decay = config.start_decay
        self._first = self._shard(FIRST, cuts) if config.start_decay else None
        self.shards = [shard for shard in (*self._averages, self._first) if shard is not None]
        self.begin()
        decayed = weights.of_kind(EMBEDDING).stop  # norms and biases come last
        ranges = [
            (max(cuts[part], first), min(cuts[part + 1], stop), decay)
            for part in self._own
            for first, stop, decay in ((0, decayed, config.weight_decay), (decayed, cuts[-1], 0.0))
        ]
        self._ranges = [(first, stop, decay) for first, stop, decay in ranges if first < stop]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One update at learning rate `rate`."""
        # The functional form: torch.optim.AdamW imports torch's compiler, which takes longer than importing torch itself.
        vector, gradient = self._weights.vector, self._weights.gradient
        (beta1, beta2), offset = self._betas, self.regions[0][self._own.start]
        exp_avg, exp_avg_sq = (shard.own for shard in self._averages)
        if self._first is not None:
            self._pull(self._first, rate * self._start_decay)
        for first, stop, decay in self._ranges:
            adamw(
                [vector[first:stop]],
                [gradient[first:stop]],
                [exp_avg[first - offset : stop - offset]],
                [exp_avg_sq[first - offset : stop - offset]],
                [],
                [self._count.clone()],
                fused=True,
                amsgrad=False,
                maximize=False,
                beta1=beta1,
                beta2=beta2,
                lr=rate,
                weight_decay=decay,
                eps=1e-8,
            )
        self._count += 1


class Muon(Optimizer):
    """Muon for the matrices inside the blocks, with q, k and v each on its own; AdamW for embeddings, norms and biases.

    Muon: Keller Jordan et al., 2024. Its momentum is Nesterov's, and starts at zero.
    """

    def __init__(self, weights: FlatWeights, config: OptimConfig, *, group: Group = Group(), parts: int = 1) -> None:
        super().__init__(weights, group, parts)
        self._beta, self._decay, self._start_decay = config.momentum, config.weight_decay, config.start_decay
        self._adamw = AdamW(weights, config, start=weights.of_kind(DOWN).stop, group=group, parts=parts)
        self._count = self._adamw._count
        width = weights.model.config.n_embd
        kinds = ((SQUARE, width, width), (UP, 4 * width, width), (DOWN, width, 4 * width))
        spans = [(weights.of_kind(kind), rows, columns) for kind, rows, columns in kinds]
        ends = [end for span, r, c in spans for end in range(span.start + r * c, span.stop + 1, r * c)]
        cuts = cuts_between(ends, parts)
        self.regions = [cuts, *self._adamw.regions]
        self._momentum = self._shard("momentum", cuts)
        self._first = self._shard(FIRST, cuts) if config.start_decay else None
        self.shards = [shard for shard in (*self._adamw.shards, self._momentum, self._first) if shard is not None]
        self.begin()
        self._stacks = {
            part: [
                (slice(max(s.start, cuts[part]), min(s.stop, cuts[part + 1])), rows, columns)
                for s, rows, columns in spans
                if max(s.start, cuts[part]) < min(s.stop, cuts[part + 1])
            ]
            for part in self._own
        }

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One update at learning rate `rate`."""
        self._adamw.step(rate)
        if self._first is not None:
            self._pull(self._first, rate * self._start_decay)
        cuts, offset = self.regions[0], self.regions[0][self._own.start]
        for part, stacks in self._stacks.items():
            own = slice(cuts[part] - offset, cuts[part + 1] - offset)
            gradient, momentum = self._weights.gradient[cuts[part] : cuts[part + 1]], self._momentum.own[own]
            momentum.lerp_(gradient, 1 - self._beta)
            nesterov = gradient.lerp(momentum, self._beta)
            spans = [span for span, *_ in stacks]
            updates = self._orthogonalised([nesterov[s.start - cuts[part] : s.stop - cuts[part]] for s in spans], stacks)
            for span, update in zip(spans, updates):
                # The update has the size that AdamW's would have, so that both use the same rate (arXiv 2502.16982).
                scale = 0.2 * math.sqrt(max(update.shape[1:]))
                matrices = self._weights.vector[span].view(update.shape)
                matrices.mul_(1 - rate * self._decay).add_(update, alpha=-rate * scale)

    @torch.no_grad()
    def rehearse(self) -> None:
        for stacks in self._stacks.values():
            self._orthogonalised([self._weights.gradient[span].clone() for span, *_ in stacks], stacks)

    def _orthogonalised(self, vectors: list[Tensor], stacks: list[tuple[slice, int, int]]) -> list[Tensor]:
        """Each of the `vectors` as a stack of orthogonal matrices (n, rows, columns); the vectors may change."""
        matrices = [vector.view(-1, rows, columns) for vector, (_, rows, columns) in zip(vectors, stacks)]
        if self._weights.step is None:
            return [orthogonalised(stack, self._weights.precision) for stack in matrices]
        self._weights.step.orthogonalise(matrices, NEWTON_SCHULZ)
        return matrices


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


def _spans_within(weights: FlatWeights, part: slice) -> Iterator[tuple[str, slice]]:
    """Names of the parameters in a part of the vector, and where they are in that part."""
    for name, span in weights.spans.items():
        if part.start <= span.start < part.stop:
            yield name, slice(span.start - part.start, span.stop - part.start)
