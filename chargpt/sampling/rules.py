"""Sampling rules: from logits to the next character.

How a character is drawn: each row of a batch has its own random generator. For every character the generator gives one number
u, uniform in [0, 1). The probabilities are summed in the order of the ids, and the first id at which the sum reaches 1 - u is
taken. It follows that a row does not depend on the other rows, and that a character depends on the seed and its position in the
stream, not on how its logits were computed. `GPT.generate` draws in the same way.

Two copies exist. chargpt/kernels/decode.c has the rules of RULES in kernels/decode.py, and chargpt/exchange/engine.js has
temperature and top-k. A change to one of these rules here is a change there, too: tests/sampling/test_c_decoder.py and
tests/exchange/test_page_check.py compare the copies with this file. A rule that decode.c does not know is applied by PyTorch.

A new rule is a field of `SamplingOptions`, and its effect in `kept` or `distribution`.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # checking the rules needs no torch
    import torch
    from torch import Tensor

    from chargpt.sampling.options import SamplingOptions

NEVER = -math.inf  # the logit of an id that cannot be drawn


def keep_top_k(logits: "Tensor", k: int) -> "Tensor":
    """Keep the k largest of each row of logits (B, V), and what ties with the k-th; the others become NEVER."""
    kth = logits.topk(min(k, logits.size(-1)), dim=-1).values[:, -1:]
    return logits.masked_fill(logits < kth, NEVER)


def keep_top_p(logits: "Tensor", p: float) -> "Tensor":
    """Keep the fewest ids of each row of logits (B, V) whose probabilities sum to p or more; the others become NEVER.

    Nucleus sampling (arXiv 1904.09751). At least one id is kept. Of equally likely ids, the lower ones are kept first.
    """
    import torch.nn.functional as F

    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    mass = ordered.softmax(dim=-1).cumsum(dim=-1)
    before = F.pad(mass[:, :-1], (1, 0))  # the total probability of all more likely ids, (B, V)
    return logits.masked_fill((before >= p).gather(-1, order.argsort(dim=-1)), NEVER)


def keep_min_p(logits: "Tensor", min_p: float) -> "Tensor":
    """Keep ids at least min_p times as likely as the most likely id of their row; logits (B, V). arXiv 2407.01082."""
    probs = logits.softmax(dim=-1)
    return logits.masked_fill(probs < min_p * probs.amax(dim=-1, keepdim=True), NEVER)


def kept(logits: "Tensor", sampling: "SamplingOptions") -> "Tensor":
    """Logits (B, V) in which those of the ids that a rule forbids are NEVER. At temperature 0 these rules hold, too."""
    if sampling.top_k:
        logits = keep_top_k(logits, sampling.top_k)
    if sampling.top_p < 1:
        logits = keep_top_p(logits, sampling.top_p)
    if sampling.min_p:
        logits = keep_min_p(logits, sampling.min_p)
    return logits


def distribution(logits: "Tensor", sampling: "SamplingOptions") -> "Tensor":
    """The probabilities (B, V) that `sampling`, at a temperature above 0, draws from; logits (B, V)."""
    # Subtracting the largest logit keeps very small temperatures from overflowing. The softmax is the same.
    logits = (logits - logits.amax(dim=-1, keepdim=True)) / max(sampling.temperature, 1e-30)
    return kept(logits, sampling).softmax(dim=-1)


def draw(probs: "Tensor", generators: "Sequence[torch.Generator]") -> "Tensor":
    """Draw an id for each row of probs (B, V) with the row's own generator, which is a CPU's; returns (B,)."""
    import torch

    uniform = torch.stack([torch.rand(1, dtype=torch.float64, generator=generator) for generator in generators])  # (B, 1)
    exact = torch.float32 if probs.device.type == "mps" else torch.float64  # MPS has no float64
    cumulative = probs.to(exact).cumsum(dim=-1)
    # 1 - u is above 0 and at most 1, so the sum reaches it at an id whose own probability is not 0.
    return (cumulative < (1 - uniform).to(probs.device, exact) * cumulative[:, -1:]).sum(dim=-1)


def choose(logits: "Tensor", sampling: "SamplingOptions", *, generators: "Sequence[torch.Generator]") -> "Tensor":
    """The next id of each row of logits (B, V), by `sampling`; returns (B,)."""
    if sampling.temperature == 0:
        return kept(logits, sampling).argmax(dim=-1)
    return draw(distribution(logits, sampling), generators)
