"""What a program tells, as values: notices, which are lines, and how far a training is. Who shows them chooses the words."""

from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

from chargpt.errors import Words

Kind = Enum(
    "Kind",
    "TEXT GROWN VOCABULARY ITEMS CHARACTERS RAREST ODD ALIKE LEFT_OUT REPEATS TO_BEAT "  # the text
    "START SETTINGS CHANGED CHOSEN CONSIDERED EXPECTED MODEL MODELS TEACHERS STEPS ESTIMATE TRAINING PROCESSES "  # the plan
    "RUN RESUMED STAGE SPEED SLOW SLOWER MEMORY ROLLBACK SWEEP TRIED "  # a training in progress
    "STOPPED DONE RESULT BETTER REPORT SAMPLE TRAIN RESUME SUGGESTED CURVES "  # what has come of it, and what to type next
    "IMPORTED LOSS WRITTEN USE RENAMED COPIED REMOVED "  # verbs
    "NOTE WARNING",
)  # what a notice is about


class Notice(NamedTuple):
    """A line for the user. Everybody sees a `line`; a `detail` is for --verbose, --dry-run, and details.txt of a run."""

    kind: Kind
    text: Words
    level: Literal["line", "detail"] = "line"


@dataclass(frozen=True, kw_only=True)
class TrainingProgress:
    """How far a training is, and what it has measured last. Losses are in nats per character; None: not measured yet."""

    step: int  # steps taken
    of: int  # steps in all; with a time limit, this may change
    model: str = ""  # which of several models of the run; empty for the only one
    train_loss: float | None = None
    val_loss: float | None = None
    evaluated: int | None = None  # the step at which val_loss was measured
    chars_per_second: float | None = None
    seconds_left: float | None = None
    sample: str = ""  # what the model wrote last
