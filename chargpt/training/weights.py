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
from chargpt.training.group import FLAGS

STACK, MATRIX, REST = range(3)  # the groups of parameters, in the order in which they are placed in the vector


def group_of(name: str, parameter: Tensor) -> tuple[int, int, int]:
    """The group of a parameter; with STACK, the rows and columns of the matrices that it consists of. Those are the matrices
    inside the blocks: a `qkv` has three, every other one is itself. Each shape is a stack of its own."""
    if parameter.dim() < 2 or not parameter.requires_grad:
        return REST, 0, 0
    if not name.startswith("blocks.") or parameter.dim() > 2:
        return MATRIX, 0, 0
    rows, columns = parameter.shape
    return STACK, rows // 3 if name.endswith(".qkv.weight") and rows % 3 == 0 else rows, columns


class FlatWeights:
    """The parameters of `model`, which become views of `vector`; `working` is the model to compute with.

    `spans` gives each parameter's place in the vector. Parameters of one group are next to each other: first the `stacks`, each
    with its place, rows and columns, then other matrices, such as embeddings, at which the `decayed` part ends, then norms,
    biases and what does not learn. The parameters of `working` are views of `computing`, which in float32 is `vector` itself.
    `quicken`, if given, puts faster parts into `working`; `model` stays as it is. `step` is the kernel that computes in place
    of torch, if there is one.
    """

    def __init__(
        self,
        model: GPT,
        precision: torch.dtype,
        *,
        quicken: Callable[[GPT], None] | None = None,
        step: StepKernel | None = None,
    ) -> None:
        groups: dict[tuple[int, int, int], list[tuple[str, nn.Parameter]]] = {}
        for named in model.named_parameters():
            groups.setdefault(group_of(*named), []).append(named)
        self.spans, self.stacks = dict[str, slice](), list[tuple[slice, int, int]]()
        self.decayed, parts, end = slice(0), list[Tensor](), 0
        for (group, rows, columns), members in sorted(groups.items(), key=lambda item: item[0][0]):
            first = end
            for name, parameter in members:
                self.spans[name] = slice(end, end := end + parameter.numel())
                parts.append(parameter.detach().flatten())
            if group == STACK:
                self.stacks.append((slice(first, end), rows, columns))
            if group != REST:
                self.decayed = slice(0, end)
        self.model, self.precision, self.step = model, precision, step
        self.vector = torch.cat(parts)
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
        if quicken is not None:
            quicken(self.working)
        self._part: Tensor | None = None  # the gradient of a further micro-batch, in `precision`
        parameters = dict(self.working.named_parameters())
        self._inputs = {name: parameters[name] for name in self.spans if parameters[name].requires_grad}
        self._slots = self._views(self.gradient)

    def _view(self, model: GPT, vector: Tensor) -> None:
        for name, parameter in model.named_parameters():
            parameter.data = vector[self.spans[name]].view(parameter.shape)

    def _views(self, vector: Tensor) -> list[Tensor]:
        return [vector[self.spans[name]].view(tensor.shape) for name, tensor in self._inputs.items()]

    def add_gradient(self, loss: Tensor, *, begins: bool, scale: Tensor | None = None) -> None:
        """Add the gradient of `loss` by `working`, times `scale`, to the sum in the vector, or begin a new sum (`begins`)."""
        # What the loss does not depend on has a gradient of zeros.
        parts = torch.autograd.grad(loss, [*self._inputs.values()], scale, allow_unused=True, materialize_grads=True)
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
