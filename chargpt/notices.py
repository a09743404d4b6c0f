"""Notices: lines for the user as values. Who decides or measures makes them, and who shows them chooses the label."""

from enum import Enum, auto
from typing import Literal, NamedTuple

from chargpt.errors import Words


class Kind(Enum):
    """What a notice is about."""

    # the text
    TEXT = auto()
    GROWN = auto()
    VOCABULARY = auto()
    ITEMS = auto()
    CHARACTERS = auto()
    RAREST = auto()
    ODD = auto()
    ALIKE = auto()
    REPEATS = auto()
    TO_BEAT = auto()
    # what will be trained
    START = auto()
    SETTINGS = auto()
    CHANGED = auto()
    CHOSEN = auto()
    CONSIDERED = auto()
    EXPECTED = auto()
    MODEL = auto()
    MODELS = auto()
    TEACHERS = auto()
    STEPS = auto()
    ESTIMATE = auto()
    TRAINING = auto()
    PROCESSES = auto()
    # a training in progress
    RUN = auto()
    RESUMED = auto()
    STAGE = auto()
    SPEED = auto()
    SLOW = auto()
    SLOWER = auto()
    MEMORY = auto()
    ROLLBACK = auto()
    SWEEP = auto()
    TRIED = auto()
    # what has come of it, and what to type next
    STOPPED = auto()
    DONE = auto()
    RESULT = auto()
    BETTER = auto()
    REPORT = auto()
    SAMPLE = auto()
    TRAIN = auto()
    RESUME = auto()
    SUGGESTED = auto()
    CURVES = auto()
    IMPORTED = auto()
    LOSS = auto()
    WRITTEN = auto()
    USE = auto()
    REMOVED = auto()
    # anything
    NOTE = auto()
    WARNING = auto()


class Notice(NamedTuple):
    """A line for the user. Everybody sees a `line`; a `detail` is for --verbose, --dry-run, and details.txt of a run."""

    kind: Kind
    text: Words
    level: Literal["line", "detail"] = "line"
