"""The folder of a run: who may write it, and what is saved there."""

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from chargpt.config import Config
from chargpt.errors import Given, Option, UserError, Words, resuming
from chargpt.files import (
    ASIDE_NAME,
    LOCK_NAME,
    WINDOWS,
    FolderLock,
    aside,
    discard,
    is_portable,
    publish_file,
    remove_left_behind,
    sync_folder,
)
from chargpt.project import command
from chargpt.runs.checkpoint import (
    STEP_NAME,
    Checkpoint,
    has_steps,
    is_lack_of_space,
    keep_best_weights,
    mark_best,
    newest,
    newest_stage,
    prune,
    publish,
    read_state,
    remove_oldest,
    stage_folder,
    steps,
)
from chargpt.runs.checkpoint_schema import CheckpointError, SavedState
from chargpt.terminal import shown

if TYPE_CHECKING:  # finding a run needs no torch
    from torch import Tensor

# What a run that died before its first checkpoint leaves in its folder.
LEFT_BEHIND = re.compile(
    r"config\.yaml|details\.txt|metrics\.jsonl|report\.html|events\.out\.tfevents\..*|\.lock|teacher-\d+|\..*\.tmp-\d+"
)
# All that a run has in its folder. What is written aside has such a name in its own.
OWN = re.compile(rf"{LEFT_BEHIND.pattern}|{STEP_NAME.pattern}|stage-\d+|best\.json|teachers-[0-9a-f]{{12}}")

DETAILS = "details.txt"  # what was said of a run before it began
REPLACE = (", or replace it with ", Option("overwrite", True))
FEWEST = 3  # checkpoints on a disk that is nearly full: the best one, the newest one, and the one that is being written

T = TypeVar("T")


class Run:
    """A run on disk that this process alone may write, for as long as the object lives."""

    def __init__(self, folder: Path, *, replaces: Path | None = None) -> None:
        """With its first checkpoint, it takes the place of the run that it `replaces`, which is locked until then.

        Raises UserError while another process trains one of them.
        """
        self._replaced = None if replaces is None else (replaces, lock_run(replaces))
        created = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for path in created:
            sync_folder(path.parent)
        self._lock = lock_run(folder)
        self.folder = folder
        self.checkpoint: Path | None = None  # the folder of that checkpoint
        remove_left_behind(folder, OWN)
        self.begin_stage(newest_stage(folder))

    def begin_stage(self, stage: int) -> None:
        """From now on, the checkpoints are those of this model of the run."""
        self.stage, self.place = stage, stage_folder(self.folder, stage)
        if stage > 1:
            self.place.mkdir(exist_ok=True)
            remove_left_behind(self.place, OWN)

    def save(self, state: SavedState, *, weights: "Mapping[str, Tensor]", training: "Mapping[str, Tensor]") -> list[str]:
        """Publish a checkpoint, mark it if it is the best, remove old ones. Returns a line for each problem with the rest.

        Raises CheckpointError when nothing could be saved; earlier checkpoints are then unchanged.
        """
        problems: list[str] = []
        path = self._with_space(lambda: publish(self.place, weights=weights, training=training, state=state), problems)
        if state.progress.best_step == state.progress.step:
            self._with_space(lambda: mark_best(path, state.progress.best_loss), problems)
        self.checkpoint = path
        if self.stage > 1:  # the model before it has ended
            problems += keep_best_weights(stage_folder(self.folder, self.stage - 1))
        problems += prune(path, state.config.checkpoint.keep)
        return problems if WINDOWS else problems + self.take_place()  # there, no folder with open files can be renamed

    @property
    def home(self) -> Path:
        """Where the run will be when it has taken the place of another one; `folder` for most runs."""
        return self.folder if self._replaced is None else self._replaced[0]

    def take_place(self) -> list[str]:
        """Give the run the name of the one that it replaces, if there is one, and delete that. Call it once something is saved.

        Of two renames, the second one needs the first: a kill between them leaves both runs whole, and `settle` goes on.
        Returns a line for a problem.
        """
        if self._replaced is None:
            return []
        (home, lock), self._replaced = self._replaced, None
        if WINDOWS:
            self._lock.release()
        problems = []
        try:
            gone = set_aside(home, lock, target=self.folder)
            os.rename(self.folder, home)
            self.folder = home
            sync_folder(home.parent)
            discard(gone)
        except OSError as error:
            problems.append(f"{shown(home)}: not replaced ({error.strerror}); this run is in {shown(self.folder)}")
        if WINDOWS:
            self._lock = lock_run(self.folder)
        self.place = stage_folder(self.folder, self.stage)
        self.checkpoint = None if self.checkpoint is None else self.place / self.checkpoint.name
        return problems

    def check_space(self, size: int) -> None:
        """Raise UserError unless the disk has room for as many checkpoints of `size` bytes as a run needs at least.

        A new run that has no room leaves no folder.
        """
        total, _, free = shutil.disk_usage(self.folder)
        if total and FEWEST * size > free:  # some network disks do not say how large they are
            what = f"{FEWEST} checkpoints of {size:,} bytes each, the fewest that a run needs, and {free:,} bytes are free"
            free_some = "; free some space there, give a path on another disk with "
            self._lock.release()
            with suppress(OSError):  # a folder that holds something stays
                (self.folder / LOCK_NAME).unlink(missing_ok=True)
                self.folder.rmdir()
            raise UserError(
                f"{shown(self.folder)}: no room for {what}", free_some, Option("run", "PATH"), ", or train a smaller model"
            )

    def _with_space(self, save: Callable[[], T], problems: list[str]) -> T:
        """What `save` returns. When its disk is full, the oldest checkpoint goes, until `save` succeeds or none can go.

        The newest valid checkpoint and the best one stay. Adds a line to `problems` for each one that has gone.
        """
        while True:
            try:
                return save()
            except CheckpointError as error:
                if not is_lack_of_space(error) or (gone := remove_oldest(self.place, but=self.checkpoint)) is None:
                    raise
                problems.append(f"{shown(gone)}: removed, since the disk is full; a new checkpoint needed its space")

    def load_newest(self) -> tuple[Checkpoint, list[str]]:
        """The newest valid checkpoint, and a line for each newer one that was skipped. Raises CheckpointError."""
        checkpoint, skipped = newest(self.place)
        progress = checkpoint.state.progress
        if progress.best_step == progress.step:  # a crash may have come between publishing it and marking it
            mark_best(checkpoint.path, progress.best_loss)
        self.checkpoint = checkpoint.path
        return checkpoint, skipped

    def write_config(self, config: Config) -> str | None:
        """Write the settings for people to read; a resumed run reads those of its checkpoint. Returns a line for a problem.

        Those of the first model are the run's: with them, another run makes the same models.
        """
        if self.stage > 1:
            return None
        from chargpt.yaml_settings import to_yaml

        return self._write("config.yaml", to_yaml(config), otherwise="the checkpoints hold the settings as well")

    def write_details(self, lines: Sequence[str]) -> str | None:
        """Write what was said of the run before it began, for people to read. Returns a line for a problem."""
        return self._write(DETAILS, "".join(f"{line}\n" for line in lines), otherwise="--verbose prints what would be in it")

    def _write(self, name: str, text: str, *, otherwise: str) -> str | None:
        path = self.folder / name
        try:
            publish_file(path, text.encode(errors="replace"))
        except OSError as error:
            return f"{shown(path)}: not written ({error.strerror}); {otherwise}"
        return None

    def name(self, checkpoints: Path) -> str:
        """What to call the run in a command."""
        return self.home.name if self.home.parent == checkpoints else shown(self.home)


def lock_run(folder: Path) -> FolderLock:
    """The lock of the run in `folder`. Raises UserError while another process trains it."""
    try:
        return FolderLock(folder, wait=False)
    except BlockingIOError:
        what = "another process is training this run; wait for it, stop it, or give your run another name with "
        raise UserError(f"{shown(folder)}: {what}", Option("run", "NAME")) from None


def folder_of(name: str, checkpoints: Path) -> Path:
    """Where a run of that name is: a name with a slash (on Windows also a backslash) is a path, any other name is a folder in
    `checkpoints`.

    Raises UserError for an invalid name.
    """
    path = Path(name)
    has_space = name != name.strip() or path.name != path.name.strip()
    if name.startswith("-") or has_space or path.name in ("", "..") or not name.isprintable():
        raise UserError(Given("run", name), "use a name such as poems, or a path such as /tmp/poems")
    is_step = STEP_NAME.fullmatch(path.name)
    if is_step or not is_portable(path.name):
        what = "is the name of a checkpoint" if is_step else "not every system allows as the name of a folder"
        raise UserError(Given("run", name, ", which "), f"{what}; use a name such as poems")
    return checkpoints / name if path.name == name else path


def new_folder(name: str, checkpoints: Path, *, overwrite: bool | None = None) -> Path:
    """The folder for a new run of that name. With `overwrite`, it may hold a run that nobody trains; False offers that.

    Raises UserError if it holds a run otherwise, or anything else.
    """
    folder = folder_of(name, checkpoints)
    settle(folder)
    if overwrite and has_steps(folder):
        check_own(folder)
        lock_run(folder).release()
        begun = beginning_of(folder)
        check_free(begun, checkpoints, [f", or remove it with {command('remove')} {shown(begun)}"])
        return folder
    return check_free(folder, checkpoints, REPLACE if overwrite is False else ())


def new_run(folder: Path, checkpoints: Path, *, overwrite: bool = False) -> Run:
    """A new run in the folder of `new_folder`, or one that begins beside it and replaces the run there. Raises UserError."""
    replaces = folder if overwrite and has_steps(folder) else None
    place = folder if replaces is None else beginning_of(folder)
    run = Run(check_free(place, checkpoints), replaces=replaces)
    check_free(place, checkpoints)  # again, now that it is locked: another program may have made it
    for events in place.glob("events.out.tfevents.*"):  # of a run that died before its first checkpoint
        discard(events)
    return run


def beginning_of(folder: Path) -> Path:
    """Where a run begins that is to replace the one in `folder`."""
    return folder.with_name(f"{folder.name}.new")


def settle(folder: Path) -> None:
    """Do the second rename of `Run.take_place` if a kill came before it: `folder` is set aside, and the new run is whole."""
    if os.path.lexists(folder) or not has_steps(new := beginning_of(folder)):
        return
    aside_names = (ASIDE_NAME.fullmatch(name) for name in _names_beside(folder))
    if any(found and found["target"] == new.name for found in aside_names):
        with suppress(OSError):  # the one who replaces it is about to do it
            FolderLock(new, wait=False).release()
            os.rename(new, folder)


def set_aside(folder: Path, lock: FolderLock, *, target: Path) -> Path:
    """Rename the folder of a run, of which this is the `lock`, to a hidden name of `target`, under which it is deleted.

    The target is the run itself, or the one that replaces it: so `settle` tells the two apart. Raises OSError.
    """
    if WINDOWS:  # which renames no folder with open files
        lock.release()
    remove_left_behind(target.absolute().parent, re.compile(re.escape(target.name)))  # of a kill while one was deleted
    os.rename(folder, aside(target))
    return aside(target)


def check_own(folder: Path) -> None:
    """Raise UserError if the folder of a run that is to be deleted also holds what is not of the run."""
    if others := sorted(path.name for path in folder.iterdir() if not OWN.fullmatch(path.name)):
        raise UserError(f"{shown(folder)}: {shown(others[0])} is in this folder and not of the run; move it elsewhere first")


def is_left_behind(folder: Path) -> bool:
    """Whether `folder` holds what a run leaves that died before its first checkpoint, and nothing else."""
    found = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return bool(found) and all(LEFT_BEHIND.fullmatch(name) for name in found)


def check_free(folder: Path, checkpoints: Path, otherwise: Sequence[Words] = ()) -> Path:
    """`folder`, in which a new run may be made. Raises UserError if it already holds a run or anything else.

    A run in `checkpoints` is named without its path. `otherwise` is what else a person may do.
    """
    for name in _names_beside(folder):
        if name != folder.name and name.casefold() == folder.name.casefold():
            why = "which is the same name on some systems"
            raise UserError(f"{shown(folder)}: {name} exists there, {why}; ", *_another_name())
    if os.path.lexists(folder) and not folder.is_dir():
        raise UserError(f"{shown(folder)}: this is a file; ", *_another_name())
    if has_steps(folder):
        own, free = (path.name if path.parent == checkpoints else shown(path) for path in (folder, free_folder(folder)))
        on_what, more = _what_is_there(folder)
        what, other = f"{shown(folder)}: a run of this name exists{on_what}; ", _another_name(free)
        if more:
            raise UserError(what, "it is finished: ", *other, ", or train it longer with ", resuming(own, more), *otherwise)
        raise UserError(what, "continue it with ", resuming(own), ", or ", *other, *otherwise)
    if folder.is_dir() and not is_left_behind(folder) and any(folder.iterdir()):
        raise UserError(f"{shown(folder)}: this folder exists and holds no checkpoint; ", *_another_name())
    return folder


def _another_name(free: str = "") -> tuple[Words, ...]:
    """What to do where the name of a run is taken; `free` is one that is not."""
    return "choose another ", Option("run", "NAME"), f", such as {free}" if free else ""


def _what_is_there(folder: Path) -> tuple[str, Option | None]:
    """On which text the run in `folder` is, for a message, and the setting that trains it on if it is finished."""
    try:
        state = read_state(steps(stage_folder(folder, newest_stage(folder)))[-1])
    except CheckpointError:
        return "", None
    texts, progress, train = state.texts, state.progress, state.config.train
    first = "standard input" if texts[:1] == ["-"] else shown(Path(texts[0]).name) if texts else ""
    on_what = f", on {first}{' and others' if len(texts) > 1 else ''}" if first else ""
    if not progress.is_finished(train) or state.stage <= train.teachers:  # with another model to follow, it goes on
        return on_what, None
    is_early = progress.step < train.max_steps
    return on_what, Option("train.patience", 0) if is_early else Option("train.max_steps", 2 * train.max_steps)


def free_folder(folder: Path) -> Path:
    """A folder that does not exist, for another run like the one in `folder`."""
    number, taken = 2, {name.casefold() for name in _names_beside(folder)}
    while f"{folder.name}-{number}".casefold() in taken:
        number += 1
    return folder.with_name(f"{folder.name}-{number}")


def _names_beside(folder: Path) -> list[str]:
    """The names in the parent of `folder`; none if it cannot be listed."""
    try:
        return os.listdir(folder.absolute().parent)
    except OSError:
        return []
