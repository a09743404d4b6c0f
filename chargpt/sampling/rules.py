"""Sampling rules: from logits to the next character.

How a character is drawn: each row of a batch has its own random generator. For every character the generator gives one number
u, uniform in [0, 1). The probabilities are summed in the order of the ids, and the first id at which the sum reaches 1 - u is
taken. It follows that a row does not depend on the other rows, and that a character depends on the seed and its position in the
stream, not on how its logits were computed. `GPT.generate` draws in the same way.

Two copies exist. chargpt/kernels/decode.c has the rules of RULES in kernels/decode.py, and chargpt/exchange/engine.js has
temperature and top-k. A change to one of these rules here is a change there, too: tests/sampling/test_c_decoder.py and
tests/exchange/test_page_check.py compare the copies with this file. A rule that decode.c does not know is applied by PyTorch.

A new rule is a field of `Sampling`, with its check, and its effect in `kept` or `distribution`. sampling/options.py has its
option, sample.py passes the option on, and sampling/loaded_model.py has its argument for Python.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from chargpt.errors import Given, UserError

if TYPE_CHECKING:  # checking the rules needs no torch
    import torch
    from torch import Tensor

NEVER = -math.inf  # the logit of an id that cannot be drawn


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next character is chosen. The rules apply in this order, each to the result of the one before.

    Raises UserError for a value out of range.
    """

    repetition_penalty: float = 1.0  # each further character of a repeated passage is this many times less likely; 1 is off
    temperature: float = 0.8  # 0 takes the most likely character; 1 is the model as trained
    top_k: int = 0  # keep the k most likely characters; 0 keeps all
    top_p: float = 1.0  # keep the fewest characters whose probabilities sum to p; 1 keeps all
    min_p: float = 0.0  # keep characters at least min_p times as likely as the most likely one; 0 keeps all

    def __post_init__(self) -> None:
        for name, allowed, use in (
            ("repetition_penalty", 1 <= self.repetition_penalty < math.inf, "a number of 1 (off) or more"),
            ("temperature", 0 <= self.temperature < math.inf, "0 (always the most likely character) or a number above 0"),
            ("top_k", self.top_k >= 0, "a whole number of 0 (off) or more"),
            ("top_p", 0 < self.top_p <= 1, "a number above 0 and up to 1 (off)"),
            ("min_p", 0 <= self.min_p <= 1, "a number from 0 (off) to 1"),
        ):
            if not allowed:
                raise UserError(Given(name, getattr(self, name)), f"use {use}")

    def describe(self) -> str:
        """The temperature, and every other rule that is on."""
        on = [field for field in fields(self) if field.name == "temperature" or getattr(self, field.name) != field.default]
        # Adding 0 turns -0.0 into 0.0.
        return ", ".join(f"{field.name.replace('_', ' ')} {getattr(self, field.name) + 0:g}" for field in on)


def rules_in_use(sampling: Sampling) -> set[str]:
    """The names of the fields that differ from their defaults."""
    return {field.name for field in fields(sampling) if getattr(sampling, field.name) != field.default}


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


def kept(logits: "Tensor", sampling: Sampling) -> "Tensor":
    """Logits (B, V) in which those of the ids that a rule forbids are NEVER. At temperature 0 these rules hold, too."""
    if sampling.top_k:
        logits = keep_top_k(logits, sampling.top_k)
    if sampling.top_p < 1:
        logits = keep_top_p(logits, sampling.top_p)
    if sampling.min_p:
        logits = keep_min_p(logits, sampling.min_p)
    return logits


def distribution(logits: "Tensor", sampling: Sampling) -> "Tensor":
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


def choose(logits: "Tensor", sampling: Sampling, *, generators: "Sequence[torch.Generator]") -> "Tensor":
    """The next id of each row of logits (B, V), by `sampling`; returns (B,)."""
    if sampling.temperature == 0:
        return kept(logits, sampling).argmax(dim=-1)
    return draw(distribution(logits, sampling), generators)
