"""The kinds of optimizers: the class of each (optimizers.py), and what the choice of settings knows of it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from chargpt.config import OptimConfig
from chargpt.training.optimizers import AdamW, Muon, Optimizer
from chargpt.training.weights import FlatWeights


@dataclass(frozen=True, kw_only=True)
class OptimizerKind:
    """An optimizer, and what the choice of settings knows of it. docs/lab/choice.md has the experiments.

    No figure has a default: those of one optimizer are wrong for another.
    """

    label: str
    make: Callable[..., Optimizer]
    model: Mapping[str, object]  # settings of the model that are chosen with it; the figures below hold for them
    rates: tuple[tuple[float, float], ...]  # the highest learning rate for up to this many parameters in the blocks
    # The highest learning rate of a training that begins with other weights: for a short text, and for a long one or one of
    # another kind.
    start_rates: tuple[float, float]
    useful_parameters: float  # for each character of the text; more have no use
    # From a long text, a model learns as much from a character as with Muon and rotary positions from so much of one.
    sees: float
    short_contexts: tuple[tuple[int, int], ...]  # the context for texts of up to this many characters
    is_context_by_width: bool  # the context of a longer text depends on the width alone
    small_dropout: float  # the highest dropout of a small model


# The kinds of optimizers. WITH_MINUTES below says which of them --minutes chooses.
OPTIMIZERS = {
    # The default. A short text teaches few learned positions.
    "adamw": OptimizerKind(
        label="AdamW",
        make=AdamW,
        model={"positions": "learned"},
        rates=((2e6, 3e-3), (math.inf, 2e-3)),
        start_rates=(3e-4, 3e-4),
        useful_parameters=10,
        sees=0.27,
        short_contexts=((15_000, 16), (25_000, 32), (60_000, 64)),
        is_context_by_width=True,
        small_dropout=0.1,
    ),
    "muon": OptimizerKind(
        label="Muon",
        make=Muon,
        model={"positions": "rotary", "bias": True},
        rates=((1e6, 8e-3), (3e6, 6e-3), (1e7, 4e-3), (math.inf, 3e-3)),
        start_rates=(5e-4, 2e-3),
        useful_parameters=math.inf,
        sees=1.0,
        short_contexts=(),
        is_context_by_width=False,
        small_dropout=1.0,
    ),
}
# The optimizer that --minutes and a training from other weights choose, which learns most; and the one that a training without
# --minutes chooses.
WITH_MINUTES, WITHOUT_MINUTES = "muon", "adamw"


def make_optimizer(weights: FlatWeights, config: OptimConfig) -> Optimizer:
    """The optimizer that `config.name` names."""
    return OPTIMIZERS[config.name].make(weights, config)
