"""Starts: models that come with the program and know a language.

    chargpt/starts/english/        a checkpoint without an optimizer's state (checkpoint.py), whose weights are float16
    chargpt/starts/english/card.json       language, texts and their terms, loss, recipe

docs/starts.md says how a start is made.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chargpt.errors import Command, Given, Message, Option, UserError, closest
from chargpt.formatting import shown
from chargpt.project import NO_START
from chargpt.runs.checkpoint import Checkpoint, load, read_state
from chargpt.runs.checkpoint_schema import JSON_LIMIT, CheckpointError, SavedState, UnreadableError, read_bounded

STARTS = Path(__file__).resolve().parents[1] / "starts"
CARD = "card.json"


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
    state: SavedState


def start_names() -> list[str]:
    """The names of the starts that come with the program."""
    return sorted(path.parent.name for path in STARTS.glob(f"*/{CARD}"))


def read_card(name: str) -> StartCard:
    """The card of the start `name`. Raises UserError if there is no such start, or if its card cannot be read."""
    with _whole(name) as folder:
        found = json.loads(read_bounded(folder / CARD, limit=JSON_LIMIT))
        return StartCard(name=name, state=read_state(folder), **found)


def load_start(name: str) -> Checkpoint:
    """The weights of the start `name`, in float32, and its state. Raises UserError."""
    with _whole(name) as folder:
        return load(folder, training=False)


@contextmanager
def _whole(name: str) -> Iterator[Path]:
    """The folder of the start `name`, in a block that reads it. Raises UserError if there is none, or if it is damaged."""
    if name not in (names := start_names()):
        meant = closest(name, [*names, NO_START]) or ", ".join([*names, NO_START])
        meant = meant.replace(NO_START, f"{NO_START} (to train without one)")
        what = f"no model of that name comes with the program; use {meant}, or a run of yours: "
        what = what if names else "this copy of the program comes without models; use a run of yours: "
        run = Message(Command("train", "TEXT", Option("init_from", "RUN")), " or ", Command("sample", "RUN"))
        raise UserError(Given("start", name, ", but "), what, run, " (to give a prompt, use ", Option("prompt", name), ")")
    try:
        yield STARTS / name
    except UnreadableError:
        raise
    except (ValueError, TypeError) as error:
        where = getattr(error, "reason", f"{shown(STARTS / name / CARD)}: not the card of a start")
        raise CheckpointError(f"{where}; it is a file of the program: install the program again") from error
