"""`chargpt.start` and `chargpt.train`: a training in a process of its own tells its progress, and ends when it is asked to."""

import asyncio
import contextlib
import dataclasses
import json
import logging
import numbers
import os
import re
import signal
import subprocess
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Unpack

from chargpt import errors
from chargpt.errors import Failed, Problem, Stopped, UserError, Words
from chargpt.formatting import one_line, shown
from chargpt.notices import Kind, TrainingProgress
from chargpt.option_table import PathLike, Values, check, named, one_of
from chargpt.planning.ahead import check_places
from chargpt.planning.cli import PATHS, TrainKeywords, TrainOptions, check_options, tree_of
from chargpt.project import project_root
from chargpt.sampling.loaded_model import LoadedModel, load
from chargpt.screen import Screen, labelled
from chargpt.session import python_process
from chargpt.session.child import RECORD
from chargpt.text.source import DEFAULT

T = TypeVar("T")
LATEST = 1_000  # records that nobody has taken yet: older ones are dropped
LOOKS = 0.5  # seconds: Windows interrupts no longer wait
LOG = logging.getLogger("chargpt")
SETTINGS = Values("a dict, for example {'train.max_steps': 500}", lambda given: {**given})  # TypeError for what is no mapping


class Silent(Screen):
    """Shows nothing."""

    bar_width = 0

    def lines(self, text: str) -> None:
        pass

    def log(self, text: Words, kind: Kind | None = None) -> None:
        pass


class Logged(Silent):
    """Shows every line by the logger "chargpt"."""

    def lines(self, text: str) -> None:
        for line in filter(str.strip, text.splitlines()):
            LOG.info("%s", one_line(line))

    line = lines

    def notice(self, kind: Kind, text: Words) -> None:
        self.log(text, kind)

    def log(self, text: Words, kind: Kind | None = None) -> None:
        LOG.log(logging.WARNING if kind is Kind.WARNING else logging.INFO, "%s", one_line(self.spelled(labelled(text, kind))))


class Printed(Screen):
    """Prints where Python prints, with a bar: in a notebook a widget. One without widgets gets plain lines."""

    @property
    def bar_width(self) -> int:
        from tqdm.notebook import tqdm_notebook

        return 120 if issubclass(_bar(), tqdm_notebook) else super().bar_width

    def new_bar(self, **settings: Any) -> Any:
        return _bar()(**settings)

    def log(self, text: Words, kind: Kind | None = None) -> None:
        self.lines(one_line(self.spelled(labelled(text, kind))))


def _bar() -> Any:
    """The class of a bar. Without widgets, tqdm would warn about that."""
    with warnings.catch_warnings(action="ignore"):
        from tqdm.auto import tqdm

    return tqdm


SCREENS: dict[str, type[Screen]] = {"nothing": Silent, "log": Logged, "bar": Printed}


class Heard:
    """What the process of a training has told. One thread listens; any thread may wait for what is new."""

    def __init__(self, child: "subprocess.Popen[str]", screen: Screen) -> None:
        self.child, self.screen, self.changed = child, screen, threading.Condition()
        self.waiting: deque[TrainingProgress] = deque(maxlen=LATEST)  # what nobody has taken yet
        self.newest: TrainingProgress | None = None
        self.run: Path | None = None  # the folder, when it has a checkpoint
        self.problem: Problem | None = None  # why it ended
        self.last_words = ""  # that are no record
        self.code: int | None = None  # with which it ended

    def listen(self) -> None:
        """Hear everything until the process has ended."""
        assert self.child.stdout is not None
        for line in self.child.stdout:
            plain, is_record, content = line.partition(RECORD)
            if plain.strip():
                self.last_words = one_line(plain.strip())
                self._show("lines", plain.rstrip("\n"))
            if is_record:
                with contextlib.suppress(json.JSONDecodeError):  # the end of a child that was killed
                    self._hear(*json.loads(content))
        code = self.child.wait()
        self.child.stdout.close()
        self.stop(os.getpid())
        self._show("end_progress")
        with self.changed:
            self.code = code
            self.changed.notify_all()

    def _hear(self, what: str, *given: Any) -> None:
        if what == "progress":
            self.newest = TrainingProgress(**given[0])
            with self.changed:
                self.waiting.append(self.newest)
                self.changed.notify_all()
            self._show(what, self.newest)
        elif what == "saved":
            self.run = Path(*given)
        elif what == "error":
            self.problem = getattr(errors, given[0])(given[1])
        else:
            self._show(what, *[Kind[given[0]], given[1]] if what == "notice" else given)

    def _show(self, method: str, *given: Any) -> None:
        """Show something; a screen that fails, such as a closed one, is not asked again, and the training goes on."""
        try:
            getattr(self.screen, method)(*given)
        except Exception:
            self.screen = Silent()

    def wait(self, has_come: Callable[["Heard"], object]) -> None:
        """Return when this has come, or the process has ended."""
        with self.changed:
            while self.code is None and not has_come(self):
                self.changed.wait(LOOKS)

    def stop(self, pid: int) -> None:
        """Ask the process to save and to end, unless this is a fork of the process `pid`, which asks for itself."""
        if self.child.stdin is not None and os.getpid() == pid:
            with contextlib.suppress(OSError, ValueError):  # it has ended, or was asked before
                self.child.stdin.write("stop")
                self.child.stdin.close()

    def abandon(self, pid: int) -> None:
        """The same where nobody is left to look."""
        self.screen = Silent()
        self.stop(pid)

    def outcome(self) -> Path:
        """The run of a process that has ended, finished or stopped with something saved. Raises what has ended it otherwise."""
        problem, run, code = self.problem, self.run, self.code
        if isinstance(problem, UserError):
            raise problem
        if code is not None and (code > 128 or code == -signal.SIGINT) and problem is None and run is None:
            raise Stopped("the training was stopped before anything was saved")
        if problem is not None or run is None or (code and code <= 128):
            words = f"; its last words: {self.last_words}" if self.last_words else ""
            saved = "" if run is None else f"; what was saved: chargpt.load({shown(run)!r})"
            kind = Failed if problem is None else type(problem)
            raise kind(f"{problem or f'the training process ended with code {code}{words}'}{saved}")
        return run


class Training:
    """A training that goes on in another process, made by `chargpt.start`. Several threads may use it.

    Iterating over it gives each `TrainingProgress` once, until it ends; so does `async for`, and `await` gives its result. A
    cancelled task stops the training, and so does the end of a `with` block, of the last reference, or of Python.
    """

    def __init__(self, options: TrainOptions, show: str) -> None:
        if not (options.resume or options.continue_):  # which look for a run first
            check_places(options, root=project_root())
        screen, asked = SCREENS[check("show", show, one_of(*SCREENS))](), json.dumps(dataclasses.asdict(options))
        self._device = str(options.settings.get("runtime", {}).get("device", "auto"))
        child = python_process.start("chargpt.session.child", asked, stderr=subprocess.STDOUT, python=interpreter())
        self._heard, self._pid = Heard(child, screen), os.getpid()
        weakref.finalize(self, self._heard.abandon, self._pid)
        threading.Thread(target=self._heard.listen, daemon=True, name="chargpt.Training").start()

    @property
    def progress(self) -> TrainingProgress | None:
        """How far it is now; None before the first step."""
        return self._heard.newest

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._heard.code is None

    @property
    def run(self) -> Path | None:
        """The folder of the run; None until something is saved."""
        return self._heard.run

    def result(self) -> LoadedModel:
        """Wait until the training ends, and return its best checkpoint, as `load` does; of one that was stopped, what was
        saved. Raises ValueError for a mistake in the arguments, and for what no other arguments mend a RuntimeError."""
        self._heard.wait(lambda heard: False)
        return load(self._heard.outcome(), device=self._device)

    def stop(self) -> LoadedModel:
        """Save the run, end the training, and return the model so far, as `result` does. Any thread may call it."""
        self._heard.stop(self._pid)
        return self.result()

    def kill(self) -> None:
        """End the training at once. What was saved before stays."""
        self._heard.child.kill()

    def __iter__(self) -> "Training":
        return self

    def __next__(self) -> TrainingProgress:
        """The next record. Raises what has ended the training, unless it was finished or stopped."""
        self._heard.wait(lambda heard: heard.waiting)
        with contextlib.suppress(IndexError):
            return self._heard.waiting.popleft()
        with contextlib.suppress(Stopped):
            self._heard.outcome()
        raise StopIteration

    def __aiter__(self) -> "Training":
        return self

    async def __anext__(self) -> TrainingProgress:
        if (now := await self._in_thread(lambda: next(self, None))) is None:
            raise StopAsyncIteration
        return now

    def __await__(self) -> Generator[Any, None, LoadedModel]:
        return self._in_thread(self.result).__await__()

    async def _in_thread(self, wait: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(wait)
        except asyncio.CancelledError:
            self._heard.stop(self._pid)
            raise

    def __enter__(self) -> "Training":
        return self

    def __exit__(self, *error: object) -> None:
        self._heard.stop(self._pid)
        self._heard.wait(lambda heard: False)


@named
def start(
    text: PathLike | Sequence[PathLike] | None = None,
    *,
    settings: Mapping[str, object] | None = None,
    show: Literal["nothing", "log", "bar"] = "nothing",
    **options: Unpack[TrainKeywords],
) -> Training:
    """Begin to train as `python train.py` does, with the same bits, in a process of its own; see `Training`.

    `text` is a file, a folder, several of them, or the name of a corpus; None is the language reference of Python. `minutes` is
    the time that the training may take, a number or as in "1h30", or `epochs` the passes over the text. `run` is a name in the
    folder checkpoints or a path; None is the name of the text. An existing run is replaced only with `overwrite=True`,
    at the first evaluation of the new one after step 0, or at its end; `resume=True` continues it (None: the newest one), and
    then there is no `text`. `continue_=True` does what is due: begin the run, continue it, or nothing. `config` is the name of
    a preset or a YAML file, and `settings` are single settings such as {"train.max_steps": 500}. `start` is the name of a model
    that comes with the program and knows a language; the new run begins with its weights. With "none" it begins with nothing,
    and without `start` a short trial decides between the two. `init_from` and `vocab_from` are runs whose weights or vocabulary
    it begins with. It learns from the predictions of each `teacher`, a run or several, as well as from the text.

    `show` is "nothing", "log" for lines of `logging.getLogger("chargpt")`, or "bar" for what train.py prints, with a bar in a
    terminal or a notebook. Raises ValueError for a mistake in the arguments; one that is found later is raised by the training.
    """
    return Training(options_for(text, settings, **options), show)


@named
def train(
    text: PathLike | Sequence[PathLike] | None = None,
    *,
    settings: Mapping[str, object] | None = None,
    show: Literal["nothing", "log", "bar"] = "bar",
    **options: Unpack[TrainKeywords],
) -> LoadedModel:
    """Train as `start` does, with the same arguments, wait for the end, and return the run as `load` does: its best checkpoint.

    An interrupt (Ctrl-C, or the stop button of a notebook) saves the run, ends the training and returns what was saved; a
    second one raises KeyboardInterrupt at once. Raises ValueError for a mistake in the arguments, and RuntimeError for what no
    other arguments mend, such as a full disk.
    """
    training = Training(options_for(text, settings, **options), show)
    try:
        return training.result()
    except KeyboardInterrupt:
        try:
            return training.stop()
        except KeyboardInterrupt:
            training.kill()
            raise
        except Stopped:
            raise KeyboardInterrupt from None


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


def interpreter() -> str:
    """The Python that runs this, or the one that a program which has Python inside has named. Raises UserError for none."""
    from multiprocessing.spawn import get_executable

    is_ours = not getattr(sys, "frozen", False)
    for program in (sys.executable or "", os.fsdecode(get_executable() or "")):
        if re.search("python|pypy", Path(program).name.lower()) and (is_ours or program != sys.executable):
            return program
    what = "has Python inside, and a training needs a Python of its own; name one with"
    raise UserError(f"{sys.executable or 'this program'}: {what} multiprocessing.set_executable('/usr/bin/python3')")
