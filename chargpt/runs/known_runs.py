"""Which of the runs on this machine a new run could start from."""

from pathlib import Path

from chargpt.runs.checkpoint import read_state, steps
from chargpt.runs.saved_state import SavedState
from chargpt.runs.sealed_json import CheckpointError
from chargpt.text.corpus import Corpus

MAX_RUNS = 20  # of which the states are read: the newest
COMMON = 0.98  # of the text's characters must be known to the run
LONGER = 3  # times as many characters as the text has must have been seen by the run


def run_to_start_from(checkpoints: Path, corpus: Corpus) -> str | None:
    """The name of the run in `checkpoints` that knows most of other text in the same script, None if there is none.

    A run fits if it knows COMMON of the characters of `corpus`, and has seen LONGER times as much of another text. A run on an
    earlier version of this text does not: its training part may hold what is the validation part now. What cannot be read is
    not considered.
    """
    characters = corpus.tokenizer.characters
    if characters is None or not checkpoints.is_dir():
        return None
    counts = corpus.counts[: len(characters)]
    found: dict[str, int] = {}
    for name, state in _states(checkpoints):
        known = set(state.tokenizer.characters or ())
        is_other = state.fingerprint != corpus.fingerprint and state.texts != corpus.texts
        is_other = is_other and not set(state.texts) & set(corpus.texts)
        share = sum(int(count) for character, count in zip(characters, counts) if character in known) / max(1, counts.sum())
        seen = state.progress.step * state.config.chars_per_step
        if share >= COMMON and seen >= LONGER * len(corpus.train) and is_other:
            found[name] = seen
    return max(found, key=found.__getitem__, default=None)


def _states(checkpoints: Path) -> list[tuple[str, SavedState]]:
    """The names and newest states of the newest runs."""
    found = []
    for folder in checkpoints.iterdir():
        try:
            newest = steps(folder)[-1:]
            found += [(path.stat().st_mtime, path) for path in newest]
        except (OSError, CheckpointError):
            continue
    states = []
    for _, path in sorted(found, reverse=True)[:MAX_RUNS]:
        try:
            states.append((path.parent.name, read_state(path)))
        except (OSError, CheckpointError):
            continue
    return states
