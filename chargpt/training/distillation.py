"""Learning from the predictions of other models as well as from the text (distillation: Hinton et al. 2015, arXiv 1503.02531).

A text says which character came next, a model how likely each one is, and several models better. A model that learns from both
memorises the text later, so a short text teaches it more.
"""

import copy
import functools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chargpt.kernels.step import KernelModel, is_faster, supports
from chargpt.model import GPT
from chargpt.text.windows import IGNORED
from chargpt.training.evaluation import digest
from chargpt.training.runtime import Runtime

SHARE = 0.8  # of the target that is the teachers' prediction; the rest is the character of the text


class DistillationLoss(nn.Module):
    """A model as training calls it, with a loss that also compares its predictions with those of `teachers`. The teachers
    compute without dropout, on the device and in the precision of `runtime`, and do not change."""

    def __init__(self, model: GPT, teachers: Sequence[GPT], *, runtime: Runtime, ignores: bool = False) -> None:
        """`ignores` if targets may be IGNORED."""
        super().__init__()
        self.model, self.ignores, self.digest = model, ignores, digest(teachers)
        copies = [copy.deepcopy(teacher).to(runtime.device, runtime.precision).eval() for teacher in teachers]
        for teacher in copies:
            runtime.quicken(teacher)
        self.teachers = nn.ModuleList(copies)
        step = runtime.step
        in_c = [is_faster(one.config, threads=runtime.threads) and supports(one.config) for one in copies]
        self._kernels = [KernelModel.of(step, one) if step and is_so else None for is_so, one in zip(in_c, copies)]

    def forward(self, idx: Tensor, targets: Tensor) -> Tensor:
        """The mean cross-entropy of the predictions for `idx` (B, T), in nats per character, where a target is not IGNORED."""
        expected = self.expected(idx, targets).flatten(0, 1)
        logits = self.model(idx).float().flatten(0, 1)
        if not self.ignores:
            return F.cross_entropy(logits, expected)
        counts = (targets != IGNORED).flatten()
        return (F.cross_entropy(logits, expected, reduction="none") * counts).sum() / counts.sum()

    @torch.no_grad()
    def expected(self, idx: Tensor, targets: Tensor) -> Tensor:
        """The probabilities (B, T, V) to learn: SHARE times the mean of the teachers', and the rest for `targets` (B, T)."""
        computing = (teacher if kernel is None else kernel.logits for kernel, teacher in zip(self._kernels, self.teachers))
        probabilities = functools.reduce(Tensor.add_, (logits(idx).float().softmax(dim=-1) for logits in computing))
        expected = probabilities.mul_(SHARE / len(self.teachers))
        known = targets.clamp(min=0).unsqueeze(-1)
        return expected.scatter_add_(-1, known, expected.new_full((*targets.shape, 1), 1 - SHARE))
