"""Notices: lines for the user as values. Who decides or measures makes them, and who shows them chooses the label."""

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
