"""The teachers of a model: others from whose predictions it learns. Each is found, read and checked once.

They are runs that the user names (--teacher), whose weights the new run keeps in folders of its own, or the models of the run
itself before its last one (train.teachers).
"""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from chargpt.config import Config, Settings
from chargpt.errors import Option, UserError
from chargpt.files import discard
from chargpt.model import GPT
from chargpt.planning.law import STUDENT_DECAY
from chargpt.runs.checkpoint import Checkpoint, best, load, publish, stage_folder
from chargpt.runs.checkpoint_schema import CheckpointError, SavedState
from chargpt.runs.load import find_checkpoint
from chargpt.runs.models import restore_model
from chargpt.terminal import Notice, shown
from chargpt.text.tokenizer import Tokenizer
from chargpt.training.distillation import digest


@dataclass(frozen=True, eq=False)
class Teacher:
    """A model that teaches, on the CPU."""

    name: str  # what to call it in a message
    model: GPT
    state: SavedState

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "Teacher":
        """The model of a checkpoint."""
        return cls(shown(checkpoint.path), restore_model(checkpoint)[0], checkpoint.state)


def models_of(teachers: Sequence[Teacher]) -> list[GPT]:
    """The models, as a Trainer takes them."""
    return [teacher.model for teacher in teachers]


def find_teachers(names: Sequence[str], checkpoints: Path) -> tuple[tuple[Teacher, ...], list[Notice]]:
    """The best checkpoint of each run that the user names, and warnings. Raises UserError."""
    found, notices = [], []
    for name in names:
        try:
            checkpoint, warnings = find_checkpoint(name, checkpoints)
        except UserError as error:
            raise UserError(Option("teacher"), ": ", error) from None
        notices += [Notice("warning", warning) for warning in warnings]
        found.append(Teacher.of(checkpoint))
    return tuple(found), notices


def teachers_of_stage(run: Path, stage: int, config: Config, *, digest_of_all: object = None) -> tuple[Teacher, ...]:
    """The teachers of a model of the run in the folder `run`, which trains with the settings `config`. Raises UserError.

    `digest_of_all` is what its saved environment has for "teachers", None for a model without any. Earlier versions kept the
    teachers in a folder with that name.
    """
    copies = sorted(run.glob("teacher-[1-9]*"), key=lambda path: (len(path.name), path.name))
    if not copies and isinstance(digest_of_all, str) and re.fullmatch("[0-9a-f]{12}", digest_of_all):
        copies = sorted((run / f"teachers-{digest_of_all}").glob("[1-9]"))
    if copies:
        teachers = tuple(Teacher.of(load(copy, training=False)) for copy in copies)
        if digest(models_of(teachers)) != digest_of_all:
            raise UserError(
                f"{shown(run)}: its teachers are not those with which it began; restore {copies[0].name} and all others"
            )
        return teachers
    if stage > config.train.teachers > 0:
        return tuple(Teacher.of(best(stage_folder(run, earlier))[0]) for earlier in range(1, stage))
    if digest_of_all is not None:
        raise UserError(f"{shown(run)}: its teachers are gone; restore teacher-1 and all others")
    return ()


def check_teachers(teachers: Sequence[Teacher], tokenizer: Tokenizer, *, context: int) -> None:
    """Raise UserError for a teacher with another vocabulary than `tokenizer`, or that cannot read a `context` so long."""
    for teacher in teachers:
        if teacher.state.tokenizer != tokenizer:
            what = f": {teacher.name}: it has another vocabulary; use runs on the same text"
            raise UserError(Option("teacher"), what)
        longest = teacher.model.config.block_size
        if longest < context:
            longer = f": {teacher.name}: its context is {longest}, and that of the new model {context}; use "
            raise UserError(Option("teacher"), longer, Option("model.block_size", longest))


def warnings_about(teachers: Sequence[Teacher], fingerprint: str) -> Iterator[Notice]:
    """A warning for each teacher that was trained on another text than that of `fingerprint`."""
    for teacher in teachers:
        if teacher.state.fingerprint != fingerprint:
            what = (
                "a teacher trained on another text; if that text contains the validation split, the losses will look too good"
            )
            yield Notice("warning", f"{teacher.name}: {what}")


def keep_teachers(teachers: Sequence[Teacher], run: Path) -> None:
    """Copy the weights of `teachers` into the folder `run` of a new run, as teacher-1, teacher-2 and so on.

    The runs may be trained further, moved or removed meanwhile. Copies that a crash has left are replaced. Raises UserError.
    """
    for left in run.glob("teacher-[1-9]*"):
        try:
            load(left, training=False)
        except CheckpointError:
            what = f"{shown(left)}: this is no copy of a teacher; rename it, or give the run another name with "
            raise UserError(what, Option("run", "NAME")) from None
        discard(left)
    for number, teacher in enumerate(teachers, 1):
        weights = teacher.model.state_dict()
        publish(run, weights=weights, training={}, state=teacher.state, name=f"teacher-{number}")


def taught(settings: Settings) -> Settings:
    """`settings` for a model with teachers, without what keeps a model from memorising a text that it learns from alone."""
    optim = {"weight_decay": min(settings.values.optim.weight_decay, STUDENT_DECAY), "average_fraction": 0.0}
    return settings.choose("it learns from other models", model={"dropout": 0.0}, optim=optim)


def student_settings(settings: Settings) -> Settings:
    """The settings of the last model of a run; with `settings`, it would be one more teacher. They replace what is given.

    With teachers, the loss is lowest at the end.
    """
    patient = settings.leaving_open("train.patience", "model.dropout", "optim.weight_decay")
    return taught(patient.choose("it learns from other models", train={"patience": 0}))


def another_seed(config: Config, *, models: int = 1) -> Config:
    """`config` for the model that follows after so many `models`."""
    seed = (config.train.seed + models) % 2**63
    return dataclasses.replace(config, train=dataclasses.replace(config.train, seed=seed))


def seconds_of_stage(config: Config, stage: int) -> float | None:
    """The seconds of a model after the first one, at most; the last one gets twice those of a teacher. None: no limit."""
    share = 1 if stage <= config.train.teachers else 2
    return 60 * share * config.train.teacher_minutes or None


def models_in_all(teachers: int) -> str:
    """How many models a run has that so many teachers begin, as a label."""
    return f"{teachers + 1} models"
