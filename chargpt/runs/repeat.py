"""Whether the settings that a run has saved make it again."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from chargpt.errors import Message, Option, UserError, Words
from chargpt.formatting import shown
from chargpt.runs.checkpoint import newest_of, newest_stage, read_state, stage_folder
from chargpt.runs.checkpoint_schema import NO_TEXT, SavedState
from chargpt.runs.stage import Start
from chargpt.standard import model_source


def models_in(run: Path) -> list[SavedState]:
    """The newest state of each model of a run. Raises CheckpointError."""
    return [newest_of(stage_folder(run, stage), read_state)[0] for stage in range(1, newest_stage(run) + 1)]


def beginning_with(start: Start) -> Option:
    """With this, another run begins with the same weights."""
    return Option("init_from" if start.is_run else "start", start.name)


def is_there(start: Start | None, run: Path) -> bool:
    """Whether the model with which the one in the folder `run` began is a start, or beside it: a run may get another name."""
    return start is None or not start.is_run or run.with_name(start.name).exists()


def missing(models: Sequence[SavedState], run: Path) -> list[str]:
    """What config.yaml cannot say of these models of `run`, so that a run with it is another one; empty if it is the same run,
    to the bit."""
    first, last = models[0], models[-1]
    others = {state.stage.length.steps for state in models[1:]} - {first.stage.length.steps}
    found = {
        "a later model took as many steps as its time allowed, and with config.yaml each takes those of the first": others,
        "the number of steps was changed while the rate was already falling": any(one.stage.length.since for one in models),
        "its settings, its time or what computes it was changed after it had begun": any(one.stage.changed for one in models),
        "it goes on": not last.is_finished,
        "it learned from teachers that were given to it": last.environment.get("teachers") and last.stage.number == 1,
        "another model.py trained it": last.model_source != model_source(),
        f"the {last.stage.start}, with whose weights it began, has another name or is gone": not is_there(
            last.stage.start, run
        ),
        "its text: it was imported without one": last.fingerprint == NO_TEXT,
    }
    return [what for what, is_so in found.items() if is_so]


def lacking(file: Path, new: SavedState) -> list[Message]:
    """Why the settings `file` of a run makes another run, which is `new`; empty if that has another text, or if the file is of
    no run."""
    with suppress(UserError, OSError):
        models = models_in(file.parent)
        last, start = models[-1], models[-1].stage.start
        begun: list[Words] = []
        if start is not None and start != new.stage.start and is_there(start, file.parent):
            begun = [Message("it began with other weights; add ", beginning_with(start))]
        # A start brings characters of its own.
        if new.fingerprint == last.fingerprint or (start != new.stage.start and new.texts == last.texts):
            lacks = (*begun, *missing(models, file.parent))
            return [Message(f"{shown(file)} does not make the same run: ", what) for what in lacks]
    return []
