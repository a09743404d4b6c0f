"""Which run is meant, and which of its checkpoints; a start, which comes with the program; a model that is kept in one file.

chargpt/starts/english/        a checkpoint without an optimizer's state (checkpoint.py), whose weights are float16
chargpt/starts/english/card.json       language, texts and their terms, loss, recipe; docs/starts.md says how it is made
"""

import glob
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from chargpt.canonical import path_on_disk, stored_as
from chargpt.config import Config
from chargpt.errors import Command, Given, Message, NoSuchRun, Option, UserError, Words, closest, nearest, resuming
from chargpt.formatting import shown
from chargpt.project import NO_START, STEP_NAME, command
from chargpt.runs.checkpoint import (
    KEPT,
    Checkpoint,
    best,
    check_weights,
    has_steps,
    load,
    newest_stage,
    read_state,
    run_of_stage,
    stage_folder,
    steps,
)
from chargpt.runs.checkpoint_schema import (
    JSON_LIMIT,
    MAX_NUMBERS,
    NO_TEXT,
    CheckpointError,
    DamagedError,
    SavedState,
    UnreadableError,
    check_size,
    read_bounded,
)
from chargpt.runs.run import settle
from chargpt.runs.stage import Length, Progress, Stage
from chargpt.settings import Settings, apply
from chargpt.standard import UNCHANGED
from chargpt.text.tokenizer import Tokenizer

STARTS, CARD = Path(__file__).resolve().parents[1] / "starts", "card.json"
MAX_LISTED = 10  # checkpoints that an error message names
MAX_RUNS = 5


def check_length(name: str) -> None:
    """Raise UserError for a name that no file can have, such as a text in place of the name of a run."""
    if len(name) > 4000 or any(len(os.fsencode(part)) > 255 for part in Path(name).parts):
        raise UserError(f"{name[:60]}...: a text, not the name of a run; give the name of a run, or its path")


def find_run(name: str | None, checkpoints: Path) -> Path:
    """The folder of the run of this name or path, or of a path into it; None: the newest one. Raises UserError."""
    if name is None:
        runs = [(steps(stage_folder(run, newest_stage(run)))[-1].stat().st_mtime, run) for run in _runs(checkpoints)]
        if not runs:
            raise NoSuchRun(f"{shown(checkpoints)}: there is no run yet; train one with ", Command("train"))
        return max(runs)[1]
    check_length(name)
    for place in places_of(name, checkpoints) if name else []:
        settle(place)
        inside = (place, *place.absolute().parents) if place.exists() else ()
        if run := next(filter(has_steps, inside), None):  # a path into a run is that run
            return run_of_stage(run)
    raise NoSuchRun(f"{name or repr(name)}: ", _why_no_run(name, checkpoints))


def _why_no_run(name: str, checkpoints: Path) -> Words:
    """Why `name` means no run, and what to do. Raises UserError for what another program has made."""
    step = _step_in(Path(name))
    if step and step.parent.is_dir() and (found := steps(step.parent)):  # it may have been removed since
        listed = ", ".join(path.name for path in found[-MAX_LISTED:])
        return f"no such checkpoint; {len(found)} in this run, use {listed}"
    if name:
        from chargpt.text.formats import refuse_checkpoint  # only a mistake needs the decompressors

        refuse_checkpoint(Path(name))
        if Path(name).is_file():
            return "a file, and this is for runs; give the name of a run, or its folder"
        if any((place / "config.yaml").is_file() for place in places_of(name, checkpoints)):
            return "this run has no checkpoint; train it again, under the same name"
    return Message("no run of that name or path; ", _other_runs(name, checkpoints))


def _step_in(path: Path) -> Path | None:
    """The folder of the checkpoint that `path` is, or is in, by its name; None for any other path."""
    return next((one for one in (path, *path.parents) if STEP_NAME.fullmatch(one.name)), None)


def places_of(name: str, checkpoints: Path) -> list[Path]:
    """Where the run `name` may be: in `checkpoints` if it is a plain name, not a path such as ../runs/a, and at that path."""
    name = stored_as(path_on_disk(name), [] if name.isascii() else [run.name for run in _runs(checkpoints)])
    path = Path(name) if Path(name).name not in ("", "..") else Path(os.path.abspath(name))  # "." has no name
    return [checkpoints / name, path] if Path(name).name == name else [path]


def _other_runs(name: str, checkpoints: Path) -> Words:
    """What to do if there is no run `name`."""
    if name in start_names():
        return Message("it is the name of a start; give it as ", Option("start", name))
    known = [run.name for run in _runs(checkpoints)]
    if not known:
        return Message("train one first with ", Command("train"))
    more = f"; {command('runs')} lists all" if len(known) > MAX_RUNS else ""
    return nearest(name, known, otherwise=f"use {'one of ' * (len(known) > 1)}{', '.join(known[:MAX_RUNS])}{more}")


def _runs(checkpoints: Path) -> list[Path]:
    return [folder for folder in run_folders(checkpoints) if _is_run(folder)]


def run_folders(checkpoints: Path) -> list[Path]:
    """The folders in `checkpoints`, also those of runs that have no checkpoint yet, sorted by name."""
    if not checkpoints.is_dir():
        return []
    return sorted(folder for folder in checkpoints.iterdir() if folder.is_dir() and not folder.name.startswith("."))


def expand_patterns(names: Sequence[str], checkpoints: Path) -> list[str]:
    """`names`, each once, with the runs or paths that match in place of patterns such as `poems*`. Raises UserError."""
    expanded: dict[str, None] = {}
    for name in names:
        if not glob.has_magic(name) or (checkpoints / name).is_dir():  # a name may hold brackets
            expanded[name] = None
            continue
        is_name = Path(name).name == name
        pattern = f"{glob.escape(str(checkpoints))}/{name}" if is_name else name
        matches = [Path(path).name if is_name else path for path in sorted(glob.glob(pattern)) if _is_run(Path(path))]
        if not matches:
            raise NoSuchRun(f"{name}: no run matches this pattern; ", _other_runs(name, checkpoints))
        expanded.update(dict.fromkeys(matches))
    return list(expanded)


def _is_run(folder: Path) -> bool:
    """Whether `folder` holds checkpoints. False for a folder that cannot be listed, so that it hides no other run."""
    try:
        return bool(steps(folder))
    except CheckpointError:
        return False


def find_checkpoint(name: str | None, checkpoints: Path, *, start: str | None = None) -> tuple[Checkpoint, list[Words]]:
    """The weights that `name` means, one checkpoint, a kept file or the best of a run (see `find_run`), or a `start`; and
    warnings.

    Of several models in a run, it is the newest that has taken a step. Raises UserError.
    """
    if start is not None:
        return load_start(start), []
    check_length(name or "")
    path = Path(name or "").absolute()
    if name and path.exists() and (step := _step_in(path)):
        return load(step, training=False), []
    if name and path.suffix == KEPT and path.is_file():
        return load_kept(path), []
    run = find_run(name, checkpoints)
    place = stage_folder(run, newest_stage(run, learned=True))
    if name and run_of_stage(path) == run.absolute() != path:  # the path of one of its models
        place = path
    checkpoint, problems = best(place)
    warnings: list[Words] = [*problems]
    if (stage := checkpoint.state.stage).is_one_of_several and not stage.is_last:
        what = f"this run trains {stage.models.count} models, and has stopped at model {stage.number}; to finish it: "
        warnings.insert(0, Message(f"{shown(run)}: {what}", resuming(shown(run), verb="train")))
    return checkpoint, warnings


def load_kept(path: Path) -> Checkpoint:
    """A model in one file, checked, that a page has kept or `export --to safetensors` has written. Raises UserError."""
    data = read_bounded(path, limit=4 * MAX_NUMBERS + JSON_LIMIT)
    try:
        size = int.from_bytes(data[:8], "little")
        if size > JSON_LIMIT:
            raise ValueError(f"its header has {size:,} bytes")
        found = json.loads(data[8 : 8 + size])["__metadata__"]
        shape, vocabulary, known = (json.loads(found.get(name, "{}")) for name in ("model", "vocabulary", "state"))
        tokenizer, config = Tokenizer.from_json(vocabulary), apply(Config(), {"model": shape}, where="model")
        check_size(config.model, tokenizer.vocab_size)
        config = apply(config, {"data": vars(tokenizer.settings(config.data))}, where="vocabulary")
        loss = None if known.get("val_loss") is None else float(known["val_loss"])
        progress = Progress(step=int(known.get("step", 0)))
        if loss is not None:
            progress.record_evaluation(loss)
        state = SavedState(
            settings=Settings(config),
            tokenizer=tokenizer,
            texts=[],
            fingerprint=NO_TEXT,
            progress=progress,
            environment={},
            stage=Stage(length=Length.of(config)),
            model_source=known.get("model_source", UNCHANGED),  # a page computes what this one does
            model_loss=known.get("model_loss"),
        )
        if SavedState.from_json(json.loads(json.dumps(state.to_json(), allow_nan=False))) != state:
            raise ValueError("its state is none that a run has")
        weights = safetensors.numpy.load(data)
    except Exception as error:  # any kind of invalid data is reported in the same way
        raise DamagedError(f"{shown(path)}: not a model that a page or this program has kept ({str(error):.200})") from error
    check_weights(weights, state, where=shown(path))
    for name, numbers in weights.items():
        if not np.isfinite(numbers).all():
            raise DamagedError(f"{shown(path)}: damaged, {name:.80} has numbers that are infinite or undefined")
    return Checkpoint(path, weights, {}, state)


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


def means_start(name: str, checkpoints: Path) -> bool:
    """Whether `name` is that of a start, and of no run."""
    return name in start_names() and not any(map(has_steps, places_of(name, checkpoints)))


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
