"""How the weights of a model are stored for writing: in float32, bfloat16, or int8 with a scale for each row.

Only the matrices are stored like this: those of the linear layers and the token embedding. Norms, biases and positions stay in
float32, and so does all arithmetic. A stored matrix stands for a rounded one, which every decoder computes with.
"""

import torch
from torch import Tensor, nn

from chargpt.errors import Given, UserError
from chargpt.model import GPT
from chargpt.sampling.c_texts import PRECISIONS

LARGEST = 127  # of the whole numbers of int8; -128 is not used


def pack(matrix: Tensor, precision: str) -> tuple[Tensor, Tensor | None]:
    """The numbers (N, K) that store `matrix` (N, K), and for int8 the scale (N,) of each row, in float32.

    With bfloat16, a number differs from the original by at most 2^-8 of it; with int8, by at most 1/254 of the row's largest.
    """
    if precision != "int8":
        return matrix.to(getattr(torch, precision)), None
    scales = matrix.abs().amax(dim=1) / LARGEST
    scales[scales == 0] = 1.0
    return (matrix / scales[:, None]).round().clamp(-LARGEST, LARGEST).to(torch.int8), scales


def unpack(numbers: Tensor, scales: Tensor | None) -> Tensor:
    """The matrix that `pack` has stored, in float32."""
    return numbers.float() if scales is None else numbers.float() * scales[:, None]


@torch.no_grad()
def round_weights(model: GPT, precision: str) -> None:
    """Replace each matrix of `model` by what it is after storing. Raises UserError for an unknown precision."""
    if precision not in PRECISIONS:
        raise UserError(Given("precision", precision), f"use one of {', '.join(PRECISIONS)}")
    if precision == "float32":
        return
    linear = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    for weight in (model.token_embedding.weight, *linear):
        weight.copy_(unpack(*pack(weight, precision)))
