"""The teachers of a model, from whose predictions it learns. Each is found, read and checked once.

They are runs that the user names (--teacher), of which the new run keeps copies, or the models before its last one.
"""

from collections.abc import Sequence
from pathlib import Path

from chargpt.errors import Option, UserError
from chargpt.files import discard
from chargpt.formatting import shown
from chargpt.model import GPT
from chargpt.notices import Kind, Notice
from chargpt.planning.law import STUDENT_DECAY
from chargpt.runs.checkpoint import Checkpoint, best, load, publish, stage_folder
from chargpt.runs.checkpoint_schema import CheckpointError
from chargpt.runs.models import restore_model
from chargpt.runs.stage import Stage
from chargpt.settings import Settings
from chargpt.text.corpus import Corpus
from chargpt.training.evaluation import digest

LEARNS = "it learns from other models"


def teachers_of_stage(run: Path, stage: Stage, *, digest_of_all: object = None) -> list[GPT]:
    """The teachers of a model of `run`, with the digest that its environment has for "teachers". Raises UserError."""
    copies = sorted(run.glob("teacher-[1-9]*"), key=lambda path: (len(path.name), path.name))
    if not copies and stage.is_last and stage.number > 1:
        return [restore_model(best(stage_folder(run, earlier))[0]) for earlier in range(1, stage.number)]
    models = [restore_model(load(copy, training=False)) for copy in copies]
    if (digest(models) if models else None) != digest_of_all:
        what = "its folders teacher-1, teacher-2, ... are gone or have changed; put the original ones back, or train a new run"
        raise UserError(f"{shown(run)}: {what}")
    return models


def check_teachers(teachers: Sequence[Checkpoint], corpus: Corpus, *, context: int) -> list[Notice]:
    """A warning for each teacher of another text. UserError if its vocabulary is another one, or its context shorter."""
    for teacher in teachers:
        where, longest = f": {shown(teacher.path)}: ", teacher.state.config.model.block_size
        if teacher.state.tokenizer != corpus.tokenizer:
            raise UserError(Option("teacher"), where, "its vocabulary is not that of your text; use a run on this text")
        if longest < context:
            what = f"it reads only {longest} characters at once, and the new model {context}; use "
            raise UserError(Option("teacher"), where, what, Option("model.block_size", longest))
    what = "this teacher learned from another text; if your validation text is in that, the losses will look too good"
    others = [shown(teacher.path) for teacher in teachers if teacher.state.fingerprint != corpus.fingerprint]
    return [Notice(Kind.WARNING, f"{name}: {what}") for name in others]


def keep_teachers(teachers: Sequence[Checkpoint], run: Path) -> None:
    """Copy the weights of `teachers` into a new run, as teacher-1 and so on: their runs may change. Raises UserError."""
    for left in run.glob("teacher-[1-9]*"):
        try:
            load(left, training=False)
        except CheckpointError:
            what = f"{shown(left)}: exists, but the teacher's copy gets this name; rename it, or give the run another name: "
            raise UserError(what, Option("run", "NAME")) from None
        discard(left)
    for number, teacher in enumerate(teachers, 1):
        publish(run, weights=teacher.weights, training={}, state=teacher.state, name=f"teacher-{number}")


def for_student(settings: Settings) -> Settings:
    """`settings` for a model with teachers, without what keeps a model from memorising a text that it learns from alone."""
    return settings.choose(LEARNS, **_of_student(settings))


def for_last_model(settings: Settings) -> Settings:
    """The same for the last model of a run, in place of what is given. Its loss is lowest at its end."""
    return settings.decide(LEARNS, **_of_student(settings), train={"patience": 0})


def _of_student(settings: Settings) -> dict[str, dict[str, object]]:
    decay = min(settings.values.optim.weight_decay, STUDENT_DECAY)
    return {"model": {"dropout": 0.0}, "optim": {"weight_decay": decay, "average_fraction": 0.0}}
