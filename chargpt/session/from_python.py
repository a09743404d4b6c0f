"""`chargpt.train`: from arguments of Python to the process that trains, and from what it tells to a run or an error."""

import argparse
import dataclasses
import json
import numbers
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from tqdm.auto import tqdm  # a widget in a notebook
from tqdm.notebook import tqdm_notebook

from chargpt import train
from chargpt.aliases import ALIASES, Ours
from chargpt.config import COMMAND_LINE, KEYS, RENAMED, Typed, typed_values
from chargpt.errors import UserError, in_python, resuming
from chargpt.keywords import keys_like
from chargpt.planning.cli import TrainOptions, check_options, with_same_settings
from chargpt.planning.cli import minutes as as_minutes
from chargpt.project import SOURCE, project_root
from chargpt.session.child import RECORD
from chargpt.terminal import Screen, number, one_line, shown
from chargpt.text.sources import DEFAULT

ARGUMENTS = train.__annotations__.keys() - {"settings", "return"}
# The child's own sys.path begins with the folder of the package, whatever is in the current folder.
CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from chargpt.session.child import run; run(*sys.argv[2:])"
NOTEBOOK = 120  # columns of the bar in a notebook

PathLike = str | os.PathLike[str]


class Caller(Screen):
    """Shows what the child tells where Python prints, and keeps what is to be returned or raised."""

    def __init__(self) -> None:
        super().__init__()
        self.run: Path | None = None  # the newest one that has a checkpoint
        self.problem = ""  # why the training ended

    @property
    def bar_width(self) -> int:
        """The columns of the progress bar."""
        return NOTEBOOK if issubclass(tqdm, tqdm_notebook) else super().bar_width

    def new_bar(self, **settings: Any) -> Any:
        """A bar of a notebook or of a terminal."""
        return tqdm(**settings)

    def show(self, line: str) -> None:
        """Show a line of the child: a record, or what else it has printed."""
        plain, is_record, content = line.partition(RECORD)
        print(plain, end="", flush=True)
        try:
            record = json.loads(content) if is_record else None
        except ValueError:  # the end of a child that was killed
            return
        match record:
            case {"kind": "lines", "text": text}:
                self.lines(text)
            case {"kind": "notice", "label": label, "text": text}:
                self.notice(label, text)
            case {"kind": "log", "text": text}:
                self.lines(one_line(text))
            case {"kind": "progress", "step": step, "total": total, "numbers": words}:
                self.progress(step, total, words)
            case {"kind": "end_progress"}:
                self.end_progress()
            case {"kind": "error", "text": text}:
                self.problem = text
            case {"kind": "saved", "run": run}:
                self.run = Path(run)


def train_run(
    text: PathLike | Sequence[PathLike] | None,
    *,
    settings: Mapping[str, object] | None,
    resume: bool,
    run: PathLike | None,
    **options: Any,
) -> Path:
    """Train with these arguments of `chargpt.train`, and return the folder of the run.

    Raises UserError for a mistake, KeyboardInterrupt if an interrupt came before there was anything to save, and RuntimeError
    if the training failed.
    """
    if not isinstance(options["overwrite"], bool):
        raise UserError(f"overwrite={options['overwrite']!r}: use True or False")
    if not isinstance(resume, bool):
        name = f", run={os.fspath(resume)!r}" if isinstance(resume, (str, os.PathLike)) else ""
        raise UserError(f"resume={resume!r}: use True or False; to continue a run, write resume=True{name}")
    _check_types({"run": run, **options}, settings)
    asked = options_for(text, settings=settings or {}, resume=resume, run=run, **options)
    screen = Caller()
    code, is_interrupted = train_in_child(asked, screen)
    if code == 2:
        raise UserError(screen.problem)
    if is_interrupted or code > 128:
        if screen.run is None:
            raise KeyboardInterrupt
        name = screen.run.name if screen.run.parent == project_root() / "checkpoints" else shown(screen.run)
        print(f"what was saved is returned; to continue: {in_python(resuming(name, verb='train'))}", flush=True)
    elif code:
        reason = screen.problem or f"the training process ended with code {code}; its last lines are above"
        saved = "" if screen.run is None else f"; the last checkpoint: chargpt.load({shown(screen.run)!r})"
        raise RuntimeError(reason + saved)
    assert screen.run is not None
    return screen.run


def train_in_child(options: TrainOptions, screen: Caller) -> tuple[int, bool]:
    """Run train.py with these `options`, and show on `screen` what it tells.

    Returns its exit code, and whether it was interrupted. A KeyboardInterrupt stops it after saving. A second one kills it and
    is raised.
    """
    # In a group of its own, a Ctrl-C of the terminal does not reach it twice.
    group: dict[str, Any] = {"process_group": 0}
    if sys.platform == "win32":
        group = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(SOURCE), str(screen.bar_width), json.dumps(dataclasses.asdict(options))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        **group,
    )
    assert child.stdin is not None and child.stdout is not None
    is_interrupted = False
    try:
        while True:
            try:
                for line in child.stdout:
                    screen.show(line)
                break
            except KeyboardInterrupt:
                if is_interrupted:
                    child.kill()
                    raise
                is_interrupted = True
                child.stdin.close()
        return child.wait(), is_interrupted
    finally:
        screen.end_progress()
        child.stdin.close()
        child.stdout.close()


def _check_types(options: Mapping[str, object], settings: object) -> None:
    """Raise UserError for an argument of a type that train.py would not understand."""
    for name in ("run", "config", "init_from", "vocab_from"):
        if not isinstance(value := options.get(name), (str, os.PathLike, type(None))):
            raise UserError(f"{name}={value!r}: use a name or a path")
    teacher = options.get("teacher") or ()
    if not all(isinstance(run, (str, os.PathLike)) for run in (teacher if isinstance(teacher, (list, tuple)) else [teacher])):
        raise UserError(f"teacher={teacher!r}: not a name; use the name or the path of a run, or a list of them")
    if not isinstance(start := options.get("start"), (str, type(None))):
        raise UserError(f"start={start!r}: use the name of a start, such as 'english'")
    if not isinstance(device := options.get("device"), (str, type(None))):
        raise UserError(f"device={device!r}: use auto, cpu, cuda, cuda:N or mps")
    if not isinstance(settings, (Mapping, type(None))):
        raise UserError(f"settings={settings!r}: use a dict, for example {{'train.max_steps': 500}}")


def _texts(text: PathLike | Sequence[PathLike] | None) -> list[str]:
    """TEXT of train.py. Raises UserError for what is not a path."""
    given = [] if text is None else [text] if isinstance(text, (str, os.PathLike)) else text
    if not isinstance(given, Sequence) or isinstance(given, bytes):
        raise UserError(f"text={text!r}: not a path; use the path of a file or folder, or a list of paths")
    if text is not None and not given:
        raise UserError(f"text={text!r}: no text in the list; give a path or more, or leave out text to train on {DEFAULT}")
    texts = []
    for one in given:
        if not isinstance(one, (str, os.PathLike)):
            raise UserError(f"text={one!r}: not a path; use the path of a file or folder, or a list of paths")
        path = os.fspath(one)
        if "\n" in path and not os.path.exists(path):
            raise UserError("text: this is a text, not a path; write it to a file, and give the name of the file")
        if path == "-":
            raise UserError("text='-': standard input is for the command line; use the path of a file")
        texts.append(path)
    return texts


def options_for(
    text: PathLike | Sequence[PathLike] | None,
    *,
    settings: Mapping[str, object],
    minutes: object,
    epochs: object,
    device: str | None,
    teacher: PathLike | Sequence[PathLike] | None = (),
    **options: object,
) -> TrainOptions:
    """These arguments as train.py has them; what is None is not given. Raises UserError."""
    tree: dict[str, dict[str, object]] = {}
    for key, value in settings.items():
        key = RENAMED.get(key, key)
        if key not in KEYS:
            raise UserError(f"settings: {key!r} given; {_instead(key)}")
        section, _, name = key.partition(".")
        tree.setdefault(section, {})[name] = _plain(value, key)
    paths = {name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in options.items()}
    asked = TrainOptions(
        texts=_texts(text),
        settings=typed_values(with_same_settings(tree, {"device": device}), where=COMMAND_LINE),
        minutes=_number("minutes", minutes, as_minutes),
        epochs=_number("epochs", epochs, number),
        teachers=[os.fspath(run) for run in ([teacher] if isinstance(teacher, (str, os.PathLike)) else teacher or ())],
        **cast(dict[str, Any], paths),
    )
    check_options(asked)
    return asked


def _number(name: str, value: object, read: Callable[[str], float]) -> float | None:
    """The value of an argument that is a number, or a text that `read` reads. Raises UserError."""
    try:
        return None if value is None else read(str(value))
    except argparse.ArgumentTypeError as error:
        raise UserError(f"{name}: {error}") from None


def _instead(key: object) -> str:
    """What to write in place of a key of `settings` that is not one of ours."""
    name = str(key).rpartition(".")[2]
    theirs = ALIASES.get(name, name)
    if (argument := theirs.name if isinstance(theirs, Ours) else name) in ARGUMENTS:
        return f"use the argument {argument}"
    if isinstance(theirs, str) and theirs not in (name, *KEYS):
        return f"use {theirs}"
    close = keys_like(str(key))
    return f"use {' or '.join(map(repr, close))}" if close else "use section.key, for example {'train.max_steps': 500}"


def _plain(value: object, key: object) -> object:
    """A value of `settings` as the type of its key may be read from it: a text is read as on the command line."""
    if isinstance(value, (list, tuple)):
        plain = [_plain(item, key) for item in value]
        return Typed(",".join(map(str, plain))) if any(isinstance(item, str) for item in plain) else plain
    if isinstance(value, (str, os.PathLike)):
        return Typed(os.fspath(value))
    if isinstance(value, numbers.Real):  # also a number of numpy
        return value if isinstance(value, bool) else int(value) if isinstance(value, numbers.Integral) else float(value)
    raise UserError(f"settings: {key}={value!r} given; use a number, a str, a bool or a tuple")
