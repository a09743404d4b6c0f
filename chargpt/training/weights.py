"""All weights of a model as one float32 vector, and the low-precision copy of the model that computes with them.

Matrix products are fast in bfloat16 and small updates are lost in it, so the weights are float32 and a copy follows them (mixed
precision training, arXiv 1710.03740). Clipping, updating and copying one vector take one call each instead of fifty.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from chargpt.kernels.step import KernelModel, StepKernel
from chargpt.model import GPT
from chargpt.training.parallel import FLAGS

# The kinds of parameters, in the order in which they are placed in the vector. All matrices of one of the first three kinds
# have the same shape, so that each kind is a stack of matrices.
SQUARE, UP, DOWN, EMBEDDING, VECTOR = range(5)


def kind_of(name: str, parameter: nn.Parameter) -> int:
    """The kind of a parameter of a GPT."""
    if parameter.dim() < 2:
        return VECTOR
    if "embedding" in name:
        return EMBEDDING
    return {"up": UP, "down": DOWN}.get(name.split(".")[-2], SQUARE)


class FlatWeights:
    """The parameters of `model`, which become views of `vector`; `working` is the model to compute with.

    `spans` gives each parameter's place in the vector. Parameters of one kind are next to each other, in the order of kinds.
    The parameters of `working` are views of `computing`, which in float32 is `vector` itself. `working` uses `attention`, if
    given, in place of its own; `model` stays as it is. `step` is the kernel that computes in place of torch, if there is one.
    """

    def __init__(
        self,
        model: GPT,
        precision: torch.dtype,
        *,
        attention: Callable[[Tensor, int, Tensor | None], Tensor] | None = None,
        step: StepKernel | None = None,
    ) -> None:
        named = sorted(model.named_parameters(), key=lambda item: kind_of(*item))
        ends = torch.tensor([parameter.numel() for _, parameter in named]).cumsum(0).tolist()
        self.spans = {name: slice(end - p.numel(), end) for (name, p), end in zip(named, ends)}
        self.kinds = {name: kind_of(name, parameter) for name, parameter in named}
        self.model, self.precision, self.step = model, precision, step
        self.vector = torch.cat([parameter.detach().flatten() for _, parameter in named])
        self.summed = self.vector.new_zeros(len(self.vector) + 1 + FLAGS)  # what processes sum: gradient, loss, flags
        self.gradient, self.tail = self.summed[: len(self.vector)], self.summed[len(self.vector) :]
        self._view(model, self.vector)
        if precision == torch.float32:
            tensors = (*model.parameters(), *model.buffers())
            self.working, self.computing = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors}), self.vector
        else:
            self.working = copy.deepcopy(model).to(precision)
            self.computing = self.vector.to(precision)
            self._view(self.working, self.computing)
        for block in self.working.blocks:
            block.attn.fused = attention
        self._part: Tensor | None = None  # the gradient of a further micro-batch, in `precision`
        parameters = dict(self.working.named_parameters())
        self._inputs = [parameters[name] for name in self.spans]
        self._slots = self._views(self.gradient)

    def _view(self, model: GPT, vector: Tensor) -> None:
        for name, parameter in model.named_parameters():
            parameter.data = vector[self.spans[name]].view(parameter.shape)

    def _views(self, vector: Tensor) -> list[Tensor]:
        return [vector[span].view(tensor.shape) for span, tensor in zip(self.spans.values(), self._inputs)]

    def of_kind(self, kind: int) -> slice:
        """The part of the vector with the parameters of a kind."""
        spans = [span for name, span in self.spans.items() if self.kinds[name] == kind]
        return slice(spans[0].start, spans[-1].stop) if spans else slice(0, 0)

    def add_gradient(self, loss: Tensor, *, begins: bool, scale: Tensor | None = None) -> None:
        """Add the gradient of `loss` by `working`, times `scale`, to the sum in the vector, or begin a new sum (`begins`)."""
        parts = torch.autograd.grad(loss, self._inputs, scale)
        if begins:
            torch._foreach_copy_(self._slots, parts)
        elif self.computing is self.vector:
            torch._foreach_add_(self._slots, parts)
        else:  # torch would add numbers of another type one parameter after the other
            self._part = torch.empty_like(self.computing) if self._part is None else self._part
            torch._foreach_copy_(self._views(self._part), parts)
            self.gradient += self._part

    def by_kernel(self) -> KernelModel | None:
        """What computes in place of torch, if there is a kernel. It follows later changes of the weights."""
        if self.step is None:
            return None
        return KernelModel(self.step, self.working, weights=self.computing, spans=self.spans, gradient=self.gradient)

    def refresh(self) -> None:
        """Copy the vector to the working model. Call this whenever the vector has changed."""
        if self.computing is not self.vector:
            self.computing.copy_(self.vector)
