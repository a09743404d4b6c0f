"""`chargpt.train`: from arguments of Python to the process that trains, and from what it tells to a run or an error."""

import contextlib
import dataclasses
import json
import numbers
import os
import subprocess
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from chargpt import notices
from chargpt.errors import IN_PYTHON, TrainingFailed, UserError, resuming
from chargpt.formatting import one_line, shown
from chargpt.keywords import named
from chargpt.option_table import PathLike, Values, check
from chargpt.planning.cli import PATHS, TrainKeywords, TrainOptions, check_options, tree_of
from chargpt.project import project_root
from chargpt.runs.run import typed_name
from chargpt.sampling.loaded_model import LoadedModel, load
from chargpt.screen import Screen
from chargpt.session.child import RECORD
from chargpt.session.python_process import start
from chargpt.text.sources import DEFAULT

NOTEBOOK = 120  # columns of the bar in a notebook
SETTINGS = Values("a dict, for example {'train.max_steps': 500}", lambda given: {**given})  # TypeError for what is no mapping


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

    def notice(self, kind: Any, text: Any) -> None:
        super().notice(notices.Kind[kind], text)

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
        """The run of a child that ended with this `code`. Raises UserError for a mistake,
        KeyboardInterrupt for one before there was anything to save, TrainingFailed for the rest."""
        problem, run = self.problem, self.run
        if isinstance(problem, UserError):
            raise problem
        if is_stopped := (is_interrupted and problem is None) or code > 128:
            if run is None:
                raise KeyboardInterrupt
            again = resuming(typed_name(run, project_root() / "checkpoints"), verb="train")
            print(f"what was saved is returned; to continue: {IN_PYTHON(again)}", flush=True)
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


@named
def train(
    text: PathLike | Sequence[PathLike] | None = None,
    *,
    settings: Mapping[str, object] | None = None,
    **options: Unpack[TrainKeywords],
) -> LoadedModel:
    """Train as `python train.py` does, with the same bits, and return the run as `load` does: its best checkpoint.

    `text` is a file, a folder, several of them, or the name of a corpus; None is the language reference of Python. `minutes` is
    the time that the training may take, a number or as in "1h30", or `epochs` the passes over the text. `run` is a name in the
    folder checkpoints or a path; None is the name of the text. An existing run is replaced only with `overwrite=True`,
    at the first evaluation of the new one after step 0, or at its end; `resume=True` continues it (None: the newest one), and
    then there is no `text`. `config` is the name of a preset or a YAML file, and `settings` are
    single settings such as {"train.max_steps": 500}. `start` is the name of a model that comes with the program and knows a
    language; the new run begins with its weights. With "none" it begins with nothing, and without `start` a short trial decides
    between the two. `init_from` and `vocab_from` are runs whose weights or vocabulary it begins
    with. It learns from the predictions of each `teacher`, a run or several, as well as from the text.

    The training runs in a process of its own and prints its progress here. An interrupt (Ctrl-C, or the stop button of a
    notebook) saves the run, ends the training and returns what was saved; a second one raises KeyboardInterrupt at once.
    Raises ValueError for a mistake in the arguments, and TrainingFailed, a RuntimeError, for what no other arguments mend, such
    as a full disk.
    """
    asked, screen = options_for(text, settings, **options), Caller()
    code, is_interrupted = train_in_child(asked, screen)
    return load(screen.result(code, is_interrupted=is_interrupted), device=options.get("device") or "auto")


def train_in_child(options: TrainOptions, screen: Caller) -> tuple[int, bool]:
    """Run train.py, and show on `screen` what it tells. Returns its exit code, and whether it was interrupted.

    A KeyboardInterrupt stops it after saving. A second one kills it and is raised.
    """
    words, is_interrupted = (str(screen.bar_width), json.dumps(dataclasses.asdict(options))), False
    with start("chargpt.session.child", *words, stderr=subprocess.STDOUT) as child:
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
    text: PathLike | Sequence[PathLike] | None, settings: Mapping[str, object] | None, **options: Unpack[TrainKeywords]
) -> TrainOptions:
    """These arguments as train.py has them; what is None is not given. Raises UserError."""
    texts = [] if text is None else list(check("text", text, PATHS))
    if "-" in texts:
        raise UserError("text='-': standard input is for the command line; use the path of a file")
    if text is not None and not texts:
        raise UserError(f"text={text!r}: the list is empty; give one path or more; without text=, {DEFAULT} is the text")
    typed = check("settings", {} if settings is None else settings, SETTINGS)
    tree = tree_of((str(key), _plain(value, key)) for key, value in typed.items())
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    asked = TrainOptions(texts=texts, settings=tree, **given)
    check_options(asked)
    return asked


def _plain(value: object, key: object) -> object:
    """A value of `settings` as the type of its key may be read from it: a text is read as on the command line."""
    if isinstance(value, (list, tuple)):
        plain = [_plain(item, key) for item in value]
        return ",".join(map(str, plain)) if any(isinstance(item, str) for item in plain) else plain
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if isinstance(value, numbers.Real):  # also a number of numpy
        return value if isinstance(value, bool) else int(value) if isinstance(value, numbers.Integral) else float(value)
    what_to_do = "use keys such as 'train.max_steps', each with a number, a str, a bool or a tuple as its value"
    raise UserError(f"settings: {key}={value!r} given; {what_to_do}")
