"""The teachers of a run: models from whose predictions it learns. Each is found, read and checked once, and then is an object.

In the settings, `train.teachers` names them by the paths of their checkpoints. A student keeps copies of their weights.
"""

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chargpt.config import MAX_TEACHERS, Config
from chargpt.errors import Message, Option, UserError, Words
from chargpt.model import GPT
from chargpt.planning.law import STUDENT_DECAY
from chargpt.runs.checkpoint import Checkpoint, has_steps, load, newest, publish_copies
from chargpt.runs.checkpoint_schema import SavedState
from chargpt.runs.load import find_checkpoint, restore_model
from chargpt.runs.run import COPIES, name_of_student, names_of_teachers
from chargpt.runs.sealed_json import CheckpointError
from chargpt.terminal import Notice, shown
from chargpt.text.tokenizer import Tokenizer
from chargpt.training.distillation import digest

DIGEST = re.compile("[0-9a-f]{12}")


@dataclass(frozen=True, eq=False)
class Teacher:
    """A model that teaches, on the CPU."""

    path: Path  # of its checkpoint, absolute; the checkpoint may be gone if the student has a copy
    model: GPT
    state: SavedState

    @property
    def name(self) -> str:
        """What to call it in a message."""
        return shown(self.path)


def models_of(teachers: Sequence[Teacher]) -> list[GPT]:
    """The models, as a Trainer takes them."""
    return [teacher.model for teacher in teachers]


def find_teachers(config: Config, checkpoints: Path) -> tuple[Config, tuple[Teacher, ...], list[Notice]]:
    """The best checkpoint of each run that `config.train.teachers` names; `config` with their full paths; warnings.

    With full paths, a run finds its teachers from any folder. Raises UserError.
    """
    found, notices = [], []
    for name in config.train.teacher_names:
        try:
            checkpoint, warnings = find_checkpoint(name, checkpoints)
        except UserError as error:
            raise UserError(f"train.teachers: {error}") from None
        notices += [Notice("warning", warning) for warning in warnings]
        path = checkpoint.path.resolve()
        if "," in str(path):
            raise UserError(f"train.teachers: {shown(path)}: a path with a comma cannot be given; rename that folder")
        found.append(_teacher(path, checkpoint))
    names = ",".join(str(teacher.path) for teacher in found)
    return dataclasses.replace(config, train=dataclasses.replace(config.train, teachers=names)), tuple(found), notices


def reopen_teachers(config: Config, *, copies: Path | None = None) -> tuple[tuple[Teacher, ...], list[Notice]]:
    """The teachers of a run that continues, by the full paths in its `config`, and warnings. Raises UserError.

    They are read from the folder `copies` of `keep_teachers`, if given. A copy that cannot be read is replaced by its original.
    """
    teachers, notices = [], []
    for number, name in enumerate(config.train.teacher_names, 1):
        checkpoint = None
        if copies is not None:
            try:
                checkpoint = load(copies / str(number), training=False)
            except CheckpointError as error:
                notices.append(Notice("warning", f"{error}; {shown(name)} is read instead"))
        if checkpoint is None and not Path(name).is_dir():
            what = f"train.teachers: {shown(name)}: it is not there any more; give the run as "
            none = Option("train.teachers", "")
            raise UserError(what, Option("train.teachers", "RUN"), ", or none with ", none)
        teachers.append(_teacher(Path(name), checkpoint or find_checkpoint(name, Path(name).parent)[0]))
    return tuple(teachers), notices


def _teacher(path: Path, checkpoint: Checkpoint) -> Teacher:
    return Teacher(path, restore_model(checkpoint)[0], checkpoint.state)


def check_teachers(teachers: Sequence[Teacher], tokenizer: Tokenizer, *, context: int) -> None:
    """Raise UserError for a teacher with another vocabulary than `tokenizer`, or that cannot read a `context` so long."""
    for teacher in teachers:
        if teacher.state.tokenizer != tokenizer:
            raise UserError(f"train.teachers: {teacher.name}: it has another vocabulary; use runs on the same text")
        longest = teacher.model.config.block_size
        if longest < context:
            longer = f"its context is {longest}, and that of the new model {context}"
            raise UserError(f"train.teachers: {teacher.name}: {longer}; use ", Option("model.block_size", longest))


def warnings_about(teachers: Sequence[Teacher], fingerprint: str) -> Iterator[Notice]:
    """A warning for each teacher that was trained on another text than that of `fingerprint`."""
    for teacher in teachers:
        if teacher.state.fingerprint != fingerprint:
            what = (
                "a teacher trained on another text; if that text contains the validation split, the losses will look too good"
            )
            yield Notice("warning", f"{teacher.name}: {what}")


def keep_teachers(teachers: Sequence[Teacher], run: Path) -> None:
    """Copy the weights of `teachers` into the folder `run`, from where `reopen_teachers` reads them when the run is resumed.

    A teacher may be trained further, moved or removed meanwhile. Raises UserError.
    """
    folder = run / f"{COPIES}{digest(models_of(teachers))}"
    if teachers and not folder.is_dir():  # the copies are published together, and never change
        publish_copies(folder, [(teacher.model.state_dict(), teacher.state) for teacher in teachers])


def kept_teachers(run: Path, environment: Mapping[str, str | int | bool]) -> Path | None:
    """The folder of the copies that the saved state of `run` was made with, by its `environment`; None if it has none."""
    known = environment.get("teachers")
    folder = run / f"{COPIES}{known}"
    return folder if isinstance(known, str) and DIGEST.fullmatch(known) and folder.is_dir() else None


def student_config(config: Config, *, teachers: Sequence[Path]) -> Config:
    """The settings of the student of the runs in the folders `teachers`; with those of `config`, it would be one more of them.

    It has the same text, model and settings, without what keeps a model from memorising a text that it learns from alone.
    """
    names = ",".join(map(str, teachers))
    train = dataclasses.replace(config.train, student_minutes=0.0, student_teachers=1, teachers=names)
    return dataclasses.replace(
        config,
        train=dataclasses.replace(train, patience=0),  # with teachers, the loss is lowest at the end
        model=dataclasses.replace(config.model, dropout=0.0),
        optim=dataclasses.replace(config.optim, weight_decay=min(config.optim.weight_decay, STUDENT_DECAY)),
    )


def another_run(config: Config, *, number: int = 1) -> Config:
    """The settings of another run like the one with the settings `config`, and with another seed for each `number`."""
    seed = (config.train.seed + number) % 2**63
    return dataclasses.replace(config, train=dataclasses.replace(config.train, seed=seed))


def one_more_run(config: Config, others: Sequence[Path]) -> Config:
    """The settings of another run like it, with a seed that none of the runs in the folders `others` has, if they exist."""
    taken = set()
    for other in others:
        with contextlib.suppress(CheckpointError):
            taken.add(newest(other, training=False)[0].state.config.train.seed)
    runs = (another_run(config, number=number) for number in itertools.count(1))
    return next(run for run in runs if run.train.seed not in taken)


def teacher_folders(folder: Path) -> list[Path]:
    """The folders that the runs get which teach the one in `folder`, when they have ended: the first, the second and so on.

    Raises UserError for a path that `train.teachers` cannot name.
    """
    path = folder.resolve()
    if "," in str(path):
        what = f"{shown(path)}: two runs need a path without commas; use another "
        raise UserError(what, Option("run"), ", or ", Option("train.student_minutes", 0))
    return [path.with_name(name) for name in names_of_teachers(path.name)]


def teachers_that_ended(folder: Path, *, count: int = MAX_TEACHERS) -> list[Path]:
    """The folders of the runs that teach the one in `folder` and have ended: `count` at most. Raises UserError."""
    folders = teacher_folders(folder)[:count]
    return list(itertools.takewhile(has_steps, folders))


def next_teacher_folder(folder: Path) -> Path:
    """The folder that the next teacher of the run in `folder` gets when it has ended. Raises UserError."""
    return teacher_folders(folder)[min(len(teachers_that_ended(folder)), MAX_TEACHERS - 1)]


def number_of(folder: Path) -> int:
    """Which of the teachers the run in `folder` is, by its name or after those that have ended: 1, 2 and so on.

    Raises UserError.
    """
    names = names_of_teachers(name_of_student(folder.name))
    return names.index(folder.name) + 1 if folder.name in names else len(teachers_that_ended(folder)) + 1


def problem_of_teachers(teachers: Sequence[Path], fingerprint: str, *, again: Words) -> Message | None:
    """Why one of the `teachers` cannot teach a model of the text with this `fingerprint`, and what to do; None if all can.

    `again` is the command after that. It needs a first teacher.
    """
    for number, teacher in enumerate(teachers):
        move = "" if number or len(teachers) == 1 else f"rename {shown(teachers[-1])} to {teacher.name}, "
        try:
            state = newest(teacher, training=False)[0].state
        except CheckpointError as error:
            return Message(error, f"; remove that folder, {move}and then ", again, ": the run is trained again")
        if state.fingerprint != fingerprint or not state.config.train.student_minutes:
            what = f"{shown(teacher)} is a run of another command; rename that folder, {move}and then "
            return Message(what, again)
    return None


def seconds_of_another(config: Config) -> float:
    """The time of a teacher after the first one, at most: half of that of the student."""
    return 60 * config.train.student_minutes / 2


def runs_in_all(count: int) -> str:
    """How many runs belong together if a student follows so many teachers, as a label."""
    return "two runs" if count == 1 else f"{count + 1} runs"


def student_folder(folder: Path) -> Path | None:
    """The folder of the run that learns from the one in `folder`; None if that is not named like a teacher."""
    name = name_of_student(folder.name)
    return folder.with_name(name) if name else None
