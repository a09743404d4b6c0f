"""Runs that differ by their seed alone, and what they reach together."""

import hashlib
import json
import statistics
from collections.abc import Iterable, Sequence
from typing import TypeVar

from chargpt.runs.checkpoint_schema import SavedState
from chargpt.settings import flat

T = TypeVar("T")
# What says nothing of what is learned: the machine, where something is, and how often is logged, measured and saved.
OTHERS = ("runtime.", "checkpoint.", "data.cache", "data.val_text", "train.log_", "train.eval_", "train.sample_length")


def group_of(state: SavedState) -> str:
    """The same for runs that differ by their seed alone: on one text, from one start, with one shape and equal given settings.
    What the program chose may differ with the speed of the machine, and is not compared."""
    settings = flat(state.settings.values)
    compared = {key: value for key, value in settings.items() if key.startswith("model.") or state.settings.is_given(key)}
    compared = {key: value for key, value in compared.items() if not key.startswith(("train.seed", *OTHERS))}
    known = [state.fingerprint, str(state.stage.start or ""), state.stage.models.count, compared]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:12]


def grouped(runs: Iterable[tuple[str, int | None, T]]) -> list[list[T]]:
    """Runs with their groups and seeds, as lists of those that differ by their seed alone, in the order of the first ones."""
    groups: dict[str, dict[int | None, list[T]]] = {}
    for group, seed, run in runs:
        groups.setdefault(group, {}).setdefault(seed, []).append(run)
    found = []
    for by_seed in groups.values():
        alike = [run for same in by_seed.values() for run in same]
        found += [alike] if len(alike) == len(by_seed) else [[run] for run in alike]  # runs of one seed are copies, or repeated
    return found


def spread(values: Sequence[float]) -> str:
    """The mean of several values and their standard deviation."""
    return f"{statistics.fmean(values):.4f} ± {statistics.stdev(values):.4f}"
