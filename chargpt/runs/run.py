"""The folder of a run: who may write it, and what is saved there."""

import itertools
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chargpt.config import Config
from chargpt.errors import Given, NoSpace, NotWritten, Option, RunExists, UserError, Words, resuming
from chargpt.files import (
    ASIDE_NAME,
    WINDOWS,
    FolderLock,
    aside,
    discard,
    is_portable,
    publish_file,
    remove_left_behind,
    sync_folder,
)
from chargpt.formatting import one_line, shown
from chargpt.project import STEP_NAME, command
from chargpt.runs.checkpoint import (
    Checkpoint,
    has_steps,
    keep_best_weights,
    newest,
    newest_of,
    newest_stage,
    prune,
    publish,
    read_state,
    stage_folder,
    steps,
)
from chargpt.runs.checkpoint_schema import NO_TEXT, CheckpointError, SavedState
from chargpt.runs.renamed_folder import RenamedFolder, names_beside
from chargpt.runs.stage import Stage, as_trained

if TYPE_CHECKING:  # finding a run needs no torch
    from torch import Tensor

# What a run that died before its first checkpoint leaves in its folder.
LEFT_BEHIND = re.compile(
    r"config\.yaml|details\.txt|metrics\.jsonl|status\.json|report\.html|events\.out\.tfevents\..*|\.lock|teacher-\d+|\..*\.tmp-\d+"
)
# All that a run has in its folder. What is written aside has such a name in its own. best.json is of runs that began before
# state.json alone named the best checkpoint.
OWN = re.compile(rf"{LEFT_BEHIND.pattern}|{STEP_NAME.pattern}|stage-\d+|best\.json")

DETAILS = "details.txt"  # what was said of a run before it began
REPLACE = (", or replace it with ", Option("overwrite", True))
FEWEST = 3  # checkpoints on a disk that is nearly full: the best one, the newest one, and the one that is being written


class Run:
    """A run on disk that this process alone may write, for as long as the object lives."""

    def __init__(self, folder: Path, *, replaces: Path | None = None) -> None:
        """It takes the place of a run that it `replaces`, which is locked. Raises UserError if another process trains one."""
        self._replaced = None if replaces is None else (replaces, lock_run(replaces))
        created = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for path in created:
            sync_folder(path.parent)
        self._lock = lock_run(folder)
        self._folder = RenamedFolder(folder)
        self._newest: Path | None = None  # the checkpoint that was saved or loaded last, in the folder
        self._best_step: int | None = None  # as that one has it
        for stage in range(1, newest_stage(folder) + 1):  # a crash in an earlier one may have left something
            self.begin_stage(stage)

    @property
    def folder(self) -> Path:
        """Where the run is: if a person has renamed it while it trains, under its new name beside the old one."""
        return self._folder.path

    @property
    def checkpoint(self) -> Path | None:
        """The newest checkpoint that was saved or loaded."""
        return self._newest and self.folder / self._newest

    @property
    def place(self) -> Path:
        """Where the checkpoints of its present model are."""
        return stage_folder(self.folder, self.stage)

    def begin_stage(self, stage: int) -> None:
        """From now on, the checkpoints are those of this model of the run."""
        self.stage = stage
        if stage > 1:
            self.place.mkdir(exist_ok=True)
        remove_left_behind(self.place, OWN)

    def save(self, state: SavedState, *, weights: "Mapping[str, Tensor]", training: "Mapping[str, Tensor]") -> list[str]:
        """Publish a checkpoint, remove old ones. Returns a line for each problem with the rest. Raises NotWritten when nothing
        could be saved; the newest and the best checkpoint are then unchanged."""
        problems: list[str] = []
        path = self._publish(problems, weights=weights, training=training, state=state)
        self._newest, self._best_step = stage_folder(Path(), self.stage) / path.name, state.progress.best_step
        if self.stage > 1:  # the model before it has ended
            problems += keep_best_weights(stage_folder(self.folder, self.stage - 1))
        problems += prune(path, state.config.checkpoint.keep, best_step=self._best_step)
        if not WINDOWS and state.progress.evaluated:  # on Windows, no folder with open files can be renamed
            problems += self.take_place()
        return problems

    @property
    def home(self) -> Path:
        """Where the run will be when it has taken the place of another one; `folder` for most runs."""
        return self.folder if self._replaced is None else self._replaced[0]

    def take_place(self) -> list[str]:
        """Give the run the name of the one that it replaces, if there is one, and delete that. Returns a line for a problem. Of
        two renames, the second one needs the first: a kill between them leaves both runs whole, and `settle` goes on."""
        if self._replaced is None:
            return []
        (home, lock), self._replaced = self._replaced, None
        if WINDOWS:
            self._lock.release()
        problems = []
        try:
            gone = set_aside(home, lock, target=self.folder)
            os.rename(self.folder, home)
            sync_folder(home.parent)
            discard(gone)
        except OSError as error:
            problems.append(f"{shown(home)}: not replaced ({error.strerror}); this run is in {shown(self.folder)}")
        if WINDOWS:
            self._lock = lock_run(self.folder)
        return problems

    def check_space(self, size: int) -> None:
        """Raise NoSpace and remove the folder of this new run without room for FEWEST checkpoints of `size` bytes."""
        total, _, free = shutil.disk_usage(self.folder)
        if total and FEWEST * size > free:  # some network disks do not say how large they are
            what = f"a run needs {FEWEST * size:,} bytes for {FEWEST} checkpoints, and only {free:,} bytes are free"
            where = f"{shown(self.folder)}: {what}; free some space there, give a path on another disk with "
            self._lock.release()  # Windows removes no open file
            discard(self.folder)
            raise NoSpace(where, Option("run", "PATH"), ", or train a smaller model")

    def _publish(self, problems: list[str], **content: Any) -> Path:
        """A new checkpoint with this content, as for `publish`. While the disk is full, older ones go, one at a time."""
        keep = most = len(steps(self.place))
        while True:
            folder = self.folder
            try:
                return publish(self.place, **content)
            except NotWritten as error:
                if self.folder != folder:  # renamed meanwhile
                    continue
                if self.checkpoint is None or keep < 2 or not isinstance(error, NoSpace):
                    raise
            what = f"{shown(self.place)}: the disk is full, so older checkpoints were removed to save the newest"
            problems += [what] * (keep == most)
            keep -= 1
            problems += prune(self.checkpoint, keep, best_step=self._best_step)

    def load_newest(self) -> tuple[Checkpoint, list[str]]:
        """The newest valid checkpoint, and a line for each newer one that was skipped. Raises CheckpointError."""
        checkpoint, skipped = newest(self.place)
        self._newest = stage_folder(Path(), self.stage) / checkpoint.path.name
        self._best_step = checkpoint.state.progress.best_step
        return checkpoint, skipped

    def write_config(self, config: Config, stage: Stage) -> str | None:
        """Write the settings of the first model, for people and for a run like this one. Returns a line for a problem."""
        if self.stage > 1:
            return None
        from chargpt.yaml_settings import to_yaml

        again = ""
        if stage.start is not None:
            from chargpt.runs.repeat import beginning_with  # most runs begin with nothing

            option = one_line(str(beginning_with(stage.start)))
            again = f"# This run began with the weights of another model: give also {option}\n"
        return self.write("config.yaml", again + to_yaml(as_trained(config, stage)))

    def write(self, name: str, text: str) -> str | None:
        """Write a file for people to read. Returns a line for a problem."""
        try:
            publish_file(self.folder / name, text.encode(errors="replace"))
        except OSError as error:
            return f"{shown(self.folder / name)}: not written ({error.strerror}); the run goes on without it"
        return None

    def name(self, checkpoints: Path) -> str:
        """What to call the run in a command."""
        return typed_name(self.folder, checkpoints)


def typed_name(folder: Path, checkpoints: Path) -> str:
    """What a person types for the run in `folder`: of one in `checkpoints`, only its name."""
    return folder.name if folder.parent == checkpoints else shown(folder)


def lock_run(folder: Path) -> FolderLock:
    """The lock of the run in `folder`. Raises UserError while another process trains it."""
    try:
        return FolderLock(folder, wait=False)
    except BlockingIOError:
        what = "another process is training this run; wait for it, stop it, or name another run"
        raise UserError(f"{shown(folder)}: {what}") from None


def folder_of(name: str, checkpoints: Path) -> Path:
    """Where a run of that name is: a name with a slash is a path, another one in `checkpoints`. Raises UserError."""
    path = Path(name)
    has_space = name != name.strip() or path.name != path.name.strip()
    is_odd = name.startswith("-") or has_space or path.name in ("", "..") or not name.isprintable()
    if is_odd or not is_portable(path.name) or STEP_NAME.fullmatch(path.name):
        what = "Windows, a shell or this program reads such a name as something else"
        raise UserError(Given("run", name, ", but "), what, "; use a name such as poems, or a path such as /tmp/poems")
    return checkpoints / name if path.name == name else path


def new_folder(name: str, checkpoints: Path, *, overwrite: bool | None = None) -> Path:
    """The folder for a new run of that name; with `overwrite`, it may hold a run, and False offers that. Raises UserError."""
    folder = folder_of(name, checkpoints)
    settle(folder)
    if overwrite and has_steps(folder):
        check_own(folder)
        lock_run(folder).release()
        begun = beginning_of(folder)
        if not _learned_nothing(begun):
            check_free(begun, checkpoints, [f", or remove it with {command('remove')} {shown(begun)}"])
        return folder
    return check_free(folder, checkpoints, REPLACE if overwrite is False else ())


def new_run(folder: Path, checkpoints: Path, *, overwrite: bool = False) -> Run:
    """A new run in the folder of `new_folder`, or one that begins beside it and replaces the run there. Raises UserError."""
    replaces = folder if overwrite and has_steps(folder) else None
    place = folder if replaces is None else beginning_of(folder)
    if replaces is not None and _learned_nothing(place):
        check_own(place)
        discard(set_aside(place, lock_run(place), target=place))
    run = Run(check_free(place, checkpoints), replaces=replaces)
    check_free(place, checkpoints)  # again, now that it is locked: another program may have made it
    for events in place.glob("events.out.tfevents.*"):  # of a run that died before its first checkpoint
        discard(events)
    return run


def beginning_of(folder: Path) -> Path:
    """Where a run begins that is to replace the one in `folder`."""
    return folder.with_name(f"{folder.name}.new")


def _learned_nothing(folder: Path) -> bool:
    """Whether the run in `folder` was neither imported nor evaluated after step 0; False if there is none that can be read."""
    with suppress(CheckpointError):
        state = newest_of(folder, read_state)[0]
        return not state.progress.evaluated and state.fingerprint != NO_TEXT
    return False


def settle(folder: Path) -> None:
    """Do the second rename of `Run.take_place` if a kill came before it: `folder` is set aside, and the new run is whole."""
    if os.path.lexists(folder) or not has_steps(new := beginning_of(folder)):
        return
    aside_names = (ASIDE_NAME.fullmatch(name) for name in names_beside(folder))
    if any(found and found["target"] == new.name for found in aside_names):
        with suppress(OSError):  # the one who replaces it is about to do it
            FolderLock(new, wait=False).release()
            os.rename(new, folder)


def set_aside(folder: Path, lock: FolderLock, *, target: Path) -> Path:
    """Rename the folder of a run, with its `lock`, to a hidden name of `target`, under which it is deleted: of itself, or of
    the run that replaces it, by which `settle` tells the two apart. Raises OSError."""
    if WINDOWS:  # which renames no folder with open files
        lock.release()
    remove_left_behind(target.absolute().parent, re.compile(re.escape(target.name)))  # of a kill while one was deleted
    os.rename(folder, aside(target))
    return aside(target)


def check_own(folder: Path) -> None:
    """Raise UserError if the folder of a run that is to be deleted also holds what is not of the run."""
    if others := sorted(path.name for path in folder.iterdir() if not OWN.fullmatch(path.name)):
        raise UserError(f"{shown(folder)}: {shown(others[0])} in this folder is not of the run; move it elsewhere first")


def is_left_behind(folder: Path) -> bool:
    """Whether `folder` holds what a run leaves that died before its first checkpoint, and nothing else."""
    found = os.listdir(folder) if folder.is_dir() else []
    return bool(found) and all(map(LEFT_BEHIND.fullmatch, found))


def check_free(folder: Path, checkpoints: Path, otherwise: Sequence[Words] = ()) -> Path:
    """`folder`, if a new run may be made there; else raises UserError, with what to do `otherwise` about a run."""
    taken = {name.casefold(): name for name in names_beside(folder)}
    name, base, what = taken.get(folder.name.casefold(), folder.name), folder.name.removesuffix(".new"), list[Words]()
    free = next(f"{base}-{number}" for number in itertools.count(2) if f"{base}-{number}".casefold() not in taken)
    if name != folder.name:
        what = [f"{name} exists there, which is the same name on some systems; "]
    elif os.path.lexists(folder) and not folder.is_dir():
        what = ["this is a file; "]
    elif has_steps(folder):
        again = resuming(typed_name(folder, checkpoints), verb="train")
        what = ["a run of this name exists; continue it with ", again, ", or "]
    elif folder.is_dir() and any(folder.iterdir()) and not is_left_behind(folder):
        what = ["this folder exists and holds no checkpoint; "]
    if what:
        what += ["choose another ", Option("run", "NAME"), f", such as {typed_name(folder.with_name(free), checkpoints)}"]
        kind, more = (RunExists, otherwise) if has_steps(folder) else (UserError, ())
        raise kind(f"{shown(folder)}: ", *what, *more)
    return folder
