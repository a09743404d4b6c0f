"""The state of a run: what it was trained on, its size, its loss, how far it is and whether it goes on.

Only the small files of a run are read, none of its weights. A run that another process writes meanwhile is listed as it is.
"""

import math
import os
import statistics
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import safetensors

from chargpt.errors import UserError, python_errors
from chargpt.files import is_locked
from chargpt.formatting import one_line, shown
from chargpt.option_table import PathLike
from chargpt.project import METRICS, STATE, STATUS, project_root
from chargpt.runs.checkpoint import WEIGHTS, newest_of, newest_stage, read_state, stage_folder, steps
from chargpt.runs.checkpoint_schema import SavedState
from chargpt.runs.load import expand_patterns, find_run, run_folders
from chargpt.runs.metrics import Status, read_status
from chargpt.standard import model_source

T = TypeVar("T")
LOST = "its process has ended without a word: it was killed, or its machine has stopped"


@dataclass(frozen=True, kw_only=True)
class RunState(Status):
    """A run, for `chargpt.runs` and `runs --json`. Times are as in ISO 8601. The state of one without a checkpoint is new, and
    that of one that cannot be read damaged."""

    run: str  # its name
    path: str
    loss: float | None = None  # of the best checkpoint, nats per character
    text: list[str] = field(default_factory=list)
    fingerprint: str = ""
    settings: dict[str, Any] = field(default_factory=dict)  # that the user has given, by section.key
    seed: int | None = None
    group: str = ""  # the same for runs that differ by their seed alone
    parameters: int | None = None  # None if its weights cannot be read
    saved: str = ""  # when the newest checkpoint was
    recorded: str = ""  # when something was recorded last: a sign of life
    bytes: int = 0  # on the disk

    @classmethod
    def of(cls, folder: Path) -> "RunState":
        """That of the run in `folder`. Never raises for what a folder may hold."""
        about: dict[str, Any] = {"run": folder.name, "path": str(folder)}
        try:
            files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
            about["bytes"] = sum(path.stat().st_size for path in files)
            if not steps(folder):
                return cls(**about, state="new", reason=f"{shown(folder.name)}: has no checkpoint yet")
            when, saved, size = newest_of(stage_folder(folder, newest_stage(folder, learned=True)), _read)[0]
        except (UserError, OSError) as error:  # the latter of a run that is removed meanwhile
            return cls(**about, state="damaged", reason=one_line(error))
        recorded = [path.stat().st_mtime for path in files if path.name in (METRICS, STATUS) and path.exists()]
        about |= {"saved": _time(when), "recorded": _time(max(recorded, default=when)), "parameters": size}
        about |= {"text": saved.text_names, "fingerprint": saved.fingerprint, "group": saved.group}
        about |= {"loss": saved.progress.best_loss, "seed": saved.config.train.seed, "settings": saved.settings.of_user}
        told = read_status(folder)
        state, reason = _state_of(folder, saved, told)
        if told is not None and told.state == state:
            return cls(**about, **vars(told))
        about |= {"step": saved.progress.step, "steps": saved.stage.length.steps, "model": saved.stage.name}
        return cls(**about, state=state, reason=reason)


def _state_of(folder: Path, saved: SavedState, told: Status | None) -> tuple[str, str]:
    """What a run does that has `saved` this and has `told` that of itself, and why."""
    if is_locked(folder):
        return "training", ""
    if saved.is_finished and saved.stage.is_last:
        return "finished", ""
    if told is None or told.state != "training":
        return ("stopped", "") if told is None else (told.state, told.reason)
    return "stopped", LOST


def run_states(names: Sequence[str], checkpoints: Path) -> list[RunState]:
    """The runs of these names, paths and patterns, or all in `checkpoints`, the newest checkpoint first. Raises NoSuchRun."""
    names = expand_patterns(names, checkpoints)
    folders = [find_run(name, checkpoints) for name in names] if names else run_folders(checkpoints)
    found = sorted(map(RunState.of, folders), key=lambda run: run.run)
    return sorted(found, key=lambda run: (bool(run.saved), run.saved), reverse=True)


def runs(*names: PathLike) -> list[RunState]:
    """The state of the runs of these names, paths and patterns, or of all, the newest first. Raises NoSuchRun, a ValueError."""
    with python_errors():
        return run_states([os.fspath(name) for name in names], project_root() / "checkpoints")


def grouped(runs: Iterable[tuple[str, int | None, T]]) -> list[list[T]]:
    """Runs with their groups and seeds, as lists of those that differ by their seed alone, in the order of the first ones."""
    groups: dict[str, dict[int | None, list[T]]] = {}
    for group, seed, run in runs:
        groups.setdefault(group, {}).setdefault(seed, []).append(run)
    found = []
    for by_seed in groups.values():
        alike = [run for same in by_seed.values() for run in same]
        found += [alike] if len(alike) == len(by_seed) else [[run] for run in alike]  # runs of one seed are copies, or repeated
    return found


def spread(values: Sequence[float]) -> str:
    """The mean of several values and their standard deviation."""
    return f"{statistics.fmean(values):.4f} ± {statistics.stdev(values):.4f}"


def _time(seconds: float) -> str:
    """A time in the time zone of this machine."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")


def _read(path: Path) -> tuple[float, SavedState, int | None]:
    """Of a checkpoint: when it was saved, its state, and the number of parameters, of whichever model.py has trained it."""
    state, size = read_state(path), None
    with suppress(OSError, ValueError, safetensors.SafetensorError):  # its weights cannot be read
        if state.model_source == model_source():
            size = state.parameters
        else:  # no number is read
            with safetensors.safe_open(path / WEIGHTS, framework="numpy") as file:
                size = sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())
    return (path / STATE).stat().st_mtime, state, size
