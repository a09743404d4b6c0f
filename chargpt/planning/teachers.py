"""The runs that teach another one: where they are, and the copies of their weights that a student keeps."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from chargpt.config import Config
from chargpt.runs.checkpoint import Checkpoint, load, publish_copies
from chargpt.runs.load import find_checkpoint, restore_model
from chargpt.runs.run import COPIES, TEACHER
from chargpt.runs.sealed_json import CheckpointError
from chargpt.terminal import UserError, say, shown
from chargpt.text.tokenizer import Tokenizer
from chargpt.training.distillation import digest
from model import GPT

DIGEST = re.compile("[0-9a-f]{12}")


def teacher_folder(folder: Path) -> Path:
    """The folder of the run that teaches the one in `folder`. Raises UserError for a path that `train.teachers` cannot name."""
    path = folder.resolve()
    if "," in str(path):
        raise UserError(f"{shown(path)}: two runs need a path without commas; use another --run, or train.pupil_minutes=0")
    return path.with_name(path.name + TEACHER)


def pupil_folder(folder: Path) -> Path | None:
    """The folder of the run that learns from the one in `folder`; None if that is not named like a teacher."""
    name = folder.name.removesuffix(TEACHER)
    return folder.with_name(name) if name and name != folder.name else None


def with_teachers_found(config: Config, checkpoints: Path) -> Config:
    """`config` with the best checkpoint of each teacher by its full path, so that it stays the same one from any folder.

    Raises UserError if there is none.
    """
    found = []
    for name in config.train.teacher_names:
        try:
            checkpoint, warnings = find_checkpoint(name, checkpoints)
        except UserError as error:
            raise UserError(f"train.teachers: {error}") from None
        for warning in warnings:
            say("warning", warning)
        path = str(checkpoint.path.resolve())
        if "," in path:
            raise UserError(f"train.teachers: {shown(path)}: a path with a comma cannot be given; rename that folder")
        found.append(path)
    return dataclasses.replace(config, train=dataclasses.replace(config.train, teachers=",".join(found)))


def load_teachers(config: Config, tokenizer: Tokenizer, *, copies: Path | None = None) -> list[GPT]:
    """The models that `config.train.teachers` names, on the CPU; those in the folder `copies` of `keep_teachers`, if given.

    Raises UserError if one cannot be read, has another vocabulary than `tokenizer`, or a shorter context than the model.
    """
    models = []
    for name, checkpoint in _checkpoints(config, copies):
        model, known, _ = restore_model(checkpoint)
        if known != tokenizer:
            raise UserError(f"train.teachers: {name}: it has another vocabulary; use runs on the same text")
        if model.config.block_size < config.model.block_size:
            longer = f"its context is {model.config.block_size}, and that of the new model {config.model.block_size}"
            raise UserError(f"train.teachers: {name}: {longer}; use model.block_size={model.config.block_size}")
        models.append(model)
    return models


def keep_teachers(config: Config, teachers: Sequence[GPT], run: Path) -> Path | None:
    """Copy the weights of `teachers` into the folder `run`, from where `load_teachers` reads them when the run is resumed.

    A teacher may be trained further, moved or removed meanwhile. Returns the folder of the copies, None without teachers.
    Raises UserError.
    """
    if not teachers:
        return None
    folder = run / f"{COPIES}{digest(teachers)}"
    if not folder.is_dir():  # the copies are published together, and never change
        states = [checkpoint.state for _, checkpoint in _checkpoints(config)]
        publish_copies(folder, [(teacher.state_dict(), state) for teacher, state in zip(teachers, states)])
    return folder


def kept_teachers(run: Path, environment: Mapping[str, str | int | bool]) -> Path | None:
    """The folder of the copies that the saved state of `run` was made with, by its `environment`; None if it has none."""
    known = environment.get("teachers")
    folder = run / f"{COPIES}{known}"
    return folder if isinstance(known, str) and DIGEST.fullmatch(known) and folder.is_dir() else None


def teachers_contexts(config: Config) -> list[int]:
    """The context of each teacher: the longest ones that they can read. Raises UserError as `load_teachers` does."""
    return [checkpoint.state.config.model.block_size for _, checkpoint in _checkpoints(config)]


def warn_of_other_texts(config: Config, fingerprint: str, *, copies: Path | None = None) -> None:
    """Say which teachers were trained on another text than that of `fingerprint`, which may contain this validation part."""
    for name, checkpoint in _checkpoints(config, copies):
        if checkpoint.state.fingerprint != fingerprint:
            say("warning", f"{name}: a teacher trained on another text; if that has this validation part, losses are too low")


def _checkpoints(config: Config, copies: Path | None = None) -> Iterator[tuple[str, Checkpoint]]:
    """The checkpoint of each teacher, and its name for people. A copy that cannot be read is replaced by its original."""
    for number, name in enumerate(config.train.teacher_names, 1):
        if copies is not None:
            try:
                yield shown(name), load(copies / str(number), training=False)
                continue
            except CheckpointError as error:
                say("warning", f"{error}; {shown(name)} is read instead")
        if not Path(name).is_dir():
            now = "give the run as train.teachers=RUN, or none with train.teachers="
            raise UserError(f"train.teachers: {shown(name)}: it is not there any more; {now}")
        yield shown(name), find_checkpoint(name, Path(name).parent)[0]
