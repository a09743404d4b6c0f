"""Starts: models that come with the program and know a language. Each has a folder in chargpt/starts/.

    chargpt/starts/english/card.json            language, texts and their terms, loss, recipe, the state of its run
    chargpt/starts/english/model.safetensors    its weights in float16, whose SHA-256 is in the card

docs/starts.md says how a start is made.
"""

import difflib
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from chargpt.errors import Command, Given, Message, Option, UserError
from chargpt.runs.checkpoint import WEIGHTS, Checkpoint, check_weights
from chargpt.runs.checkpoint_schema import JSON_LIMIT, CheckpointError, SavedState, check_format, read_bounded
from chargpt.terminal import shown

STARTS = Path(__file__).resolve().parents[1] / "starts"
CARD = "card.json"
DAMAGED = "a file of the program is damaged; install the program again"
# Bytes of the weights, at most.
LARGEST = 5_000_000


@dataclass(frozen=True, kw_only=True)
class StartCard:
    """What is known of a start."""

    name: str
    language: str
    loss: float  # on a held-out part of its texts, nats per character
    rounding: float  # how much of it is due to the rounding of the weights to float16
    read: int  # characters that it has read
    texts: list[dict[str, Any]]  # name, characters and terms of each
    licence: str
    recipe: list[str]  # the commands that made it
    sha256: str  # of the weights
    state: SavedState


def start_names() -> list[str]:
    """The names of the starts that come with the program."""
    return sorted(path.parent.name for path in STARTS.glob(f"*/{CARD}"))


def read_card(name: str) -> StartCard:
    """The card of the start `name`. Raises UserError if there is no such start, or if its card cannot be read."""
    names = start_names()
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1) or names
        what = f"no model of that name comes with the program; use {', '.join(close)}, or a run of yours: "
        what = what if names else "this copy of the program comes without models; use a run of yours: "
        run = Message(Command("train", "TEXT", Option("init_from", "RUN")), " or ", Command("sample", "RUN"))
        raise UserError(Given("start", name, ", but "), what, run, " (to give a prompt, use ", Option("prompt", name), ")")
    path = STARTS / name / CARD
    try:
        found = json.loads(read_bounded(path, limit=JSON_LIMIT))
        check_format(found.pop("format"), path)
        state = SavedState.from_json(found.pop("state"))
        return StartCard(name=name, state=state, **found)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{shown(path)}: {DAMAGED}") from error


def load_start(name: str) -> Checkpoint:
    """The weights of the start `name`, in float32, and its state. Raises UserError."""
    card = read_card(name)
    path = STARTS / name / WEIGHTS
    data = read_bounded(path, limit=LARGEST)
    if hashlib.sha256(data).hexdigest() != card.sha256:
        raise CheckpointError(f"{shown(path)}: {DAMAGED}")
    weights = {key: numbers.astype(np.float32) for key, numbers in safetensors.numpy.load(data).items()}
    check_weights(weights, card.state, where=f"start {name}")
    return Checkpoint(path, weights, {}, card.state)
