"""`chargpt.train`: from arguments of Python to the process that trains, and from what it tells to a run or an error."""

import argparse
import contextlib
import dataclasses
import json
import numbers
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from chargpt.config import COMMAND_LINE, typed_values
from chargpt.errors import TrainingFailed, UserError, in_python, resuming
from chargpt.planning.cli import TrainOptions, check_options, tree_of, with_same_settings
from chargpt.planning.cli import minutes as as_minutes
from chargpt.project import SOURCE, project_root
from chargpt.runs.run import typed_name
from chargpt.session.child import RECORD
from chargpt.terminal import Screen, number, one_line, shown
from chargpt.text.sources import DEFAULT

# The child's own sys.path begins with the folder of the package, whatever is in the current folder.
CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from chargpt.session.child import run; run(*sys.argv[2:])"
NOTEBOOK = 120  # columns of the bar in a notebook
PATH = (str, os.PathLike)
A_NAME = "a name or a path, in quotes"
# The types of the arguments that train.py would not understand otherwise, besides None, and what to use.
TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(("run", "config", "init_from", "vocab_from"), (PATH, A_NAME)),
    "start": ((str,), "the name of a start, such as 'english', or 'none'"),
    "device": ((str,), "auto, cpu, cuda, cuda:N or mps"),
    "settings": ((Mapping,), "a dict, for example {'train.max_steps': 500}"),
    "resume": ((bool,), "True or False; the argument run says which one"),
    "overwrite": ((bool,), "True or False"),
}

PathLike = str | os.PathLike[str]


class Caller(Screen):
    """Shows what the child tells where Python prints, and keeps what is to be returned or raised."""

    def __init__(self) -> None:
        super().__init__()
        self.run: Path | None = None  # the newest one that has a checkpoint
        self.problem: UserError | TrainingFailed | None = None  # why the training ended

    @property
    def bar_width(self) -> int:
        from tqdm.notebook import tqdm_notebook

        return NOTEBOOK if issubclass(_bar(), tqdm_notebook) else super().bar_width

    def new_bar(self, **settings: Any) -> Any:
        return _bar()(**settings)

    def show(self, line: str) -> None:
        """Show a line of the child: a record of what `ParentScreen` was asked for, or what else it has printed."""
        plain, is_record, content = line.partition(RECORD)
        print(plain, end="", flush=True)
        if is_record:
            with contextlib.suppress(json.JSONDecodeError):  # the end of a child that was killed
                method, *given = json.loads(content)
                getattr(self, method)(*given)

    def log(self, text: Any) -> None:
        self.lines(one_line(text))

    def error(self, text: Any) -> None:
        self.problem = TrainingFailed(text)

    def mistake(self, text: str) -> None:
        """The child ends since only its caller can mend this."""
        self.problem = UserError(text)

    def saved(self, run: Path) -> None:
        self.run = Path(run)

    def result(self, code: int, *, is_interrupted: bool) -> Path:
        """The run of a child that ended with this `code`. Raises what `train_run` raises."""
        problem, run = self.problem, self.run
        if isinstance(problem, UserError):
            raise problem
        if is_stopped := (is_interrupted and problem is None) or code > 128:
            if run is None:
                raise KeyboardInterrupt
            again = resuming(typed_name(run, project_root() / "checkpoints"), verb="train")
            print(f"what was saved is returned; to continue: {in_python(again)}", flush=True)
        if code and not is_stopped:
            saved = "" if run is None else f"; what was saved: chargpt.load({shown(run)!r})"
            raise TrainingFailed(
                f"{problem or f'the training process ended with code {code}; its last lines are above'}{saved}"
            )
        assert run is not None
        return run


def _bar() -> Any:
    """The class of a bar: in a notebook a widget. One without widgets gets plain lines, and no warning of tqdm about that."""
    with warnings.catch_warnings(action="ignore"):
        from tqdm.auto import tqdm

    return tqdm


def train_run(text: PathLike | Sequence[PathLike] | None, **options: Any) -> Path:
    """Train with these arguments of `chargpt.train`, and return the folder of the run.

    Raises UserError for a mistake, KeyboardInterrupt for one before there was anything to save, TrainingFailed for the rest.
    """
    asked, screen = options_for(text, **options), Caller()
    code, is_interrupted = train_in_child(asked, screen)
    return screen.result(code, is_interrupted=is_interrupted)


def train_in_child(options: TrainOptions, screen: Caller) -> tuple[int, bool]:
    """Run train.py, and show on `screen` what it tells. Returns its exit code, and whether it was interrupted.

    A KeyboardInterrupt stops it after saving. A second one kills it and is raised.
    """
    # In a group of its own, a Ctrl-C of the terminal does not reach it twice.
    group: dict[str, Any] = {"process_group": 0}
    if sys.platform == "win32":
        group = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    words = [sys.executable, "-c", CHILD, str(SOURCE), str(screen.bar_width), json.dumps(dataclasses.asdict(options))]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    is_interrupted = False
    with subprocess.Popen(words, encoding="utf-8", errors="replace", **pipes, **group) as child:
        assert child.stdin is not None and child.stdout is not None
        while True:
            try:
                for line in child.stdout:
                    screen.show(line)
                screen.end_progress()
                return child.wait(), is_interrupted
            except KeyboardInterrupt:
                if is_interrupted:
                    screen.end_progress()
                    child.kill()
                    raise
                is_interrupted = True
                child.stdin.close()


def options_for(
    text: PathLike | Sequence[PathLike] | None,
    *,
    settings: Mapping[str, object] | None,
    minutes: object,
    epochs: object,
    device: str | None,
    teacher: PathLike | Sequence[PathLike] | None = (),
    **options: Any,
) -> TrainOptions:
    """These arguments as train.py has them; what is None is not given. Raises UserError."""
    _check_types({"settings": settings, "device": device, **options})
    texts = [] if text is None else _paths("text", text)
    if "-" in texts:
        raise UserError("text='-': standard input is for the command line; use the path of a file")
    if text is not None and not texts:
        raise UserError(f"text={text!r}: the list is empty; give one path or more; without text=, {DEFAULT} is the text")
    tree = tree_of((str(key), _plain(value, key)) for key, value in (settings or {}).items())
    asked = TrainOptions(
        texts=texts,
        settings=typed_values(with_same_settings(tree, {"device": device}), where=COMMAND_LINE),
        minutes=_number("minutes", minutes, as_minutes),
        epochs=_number("epochs", epochs, number),
        teacher=_paths("teacher", teacher or ()),
        **{name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in options.items()},
    )
    check_options(asked)
    return asked


def _check_types(given: Mapping[str, object]) -> None:
    """Raise UserError for an argument of a type that train.py would not understand."""
    for name, (types, what) in TYPES.items():
        if (value := given.get(name)) is not None and not isinstance(value, types):
            raise UserError(f"{name}={value!r}: use {what}")


def _paths(name: str, given: PathLike | Sequence[PathLike]) -> list[str]:
    """The paths in an argument that takes one or several. Raises UserError for anything else."""
    paths = [given] if isinstance(given, PATH) else given
    if not isinstance(paths, (list, tuple)) or not all(isinstance(path, PATH) for path in paths):
        raise UserError(f"{name}={given!r}: use {A_NAME}, or a list of them")
    return list(map(os.fspath, paths))


def _number(name: str, value: object, read: Callable[[str], float]) -> float | None:
    """The value of an argument that is a number, or a text that `read` reads. Raises UserError."""
    try:
        return None if value is None else read(str(value))
    except argparse.ArgumentTypeError as error:
        raise UserError(f"{name}: {error}") from None


def _plain(value: object, key: object) -> object:
    """A value of `settings` as the type of its key may be read from it: a text is read as on the command line."""
    if isinstance(value, (list, tuple)):
        plain = [_plain(item, key) for item in value]
        return ",".join(map(str, plain)) if any(isinstance(item, str) for item in plain) else plain
    if isinstance(value, PATH):
        return os.fspath(value)
    if isinstance(value, numbers.Real):  # also a number of numpy
        return value if isinstance(value, bool) else int(value) if isinstance(value, numbers.Integral) else float(value)
    what_to_do = "use keys such as 'train.max_steps', each with a number, a str, a bool or a tuple as its value"
    raise UserError(f"settings: {key}={value!r} given; {what_to_do}")
