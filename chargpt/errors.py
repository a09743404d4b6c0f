"""What a message is made of: text, and options and commands, which the command line and Python spell in their own ways.

A message is never parsed and never rewritten. Who shows it chooses the spelling: `IN_SHELL(message)`, which is `str(message)`,
is that of the command line, `IN_PYTHON(message)` that of the library.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from chargpt.project import PACKAGE, shell_word, typed_home
from chargpt.project import command as called

FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))  # of a disk, or of a quota on it
# What to do about a file or a folder, by the number of the system's error.
TO_DO = {
    **dict.fromkeys(FULL, "free some space on its disk"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "change the permissions of the file or its folder"),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR), "check the path"),
    errno.EROFS: "choose a place on a disk that can be written to",
    errno.EIO: "its disk or the network may be failing: choose a place on another one",
    errno.ENOLCK: "its disk cannot lock files, as some network disks cannot: choose a place on a local one",
    errno.EFBIG: "choose a place on a disk that takes larger files",
    errno.EEXIST: "choose a name that is not taken",
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "raise the limit of open files (ulimit -n)"),
    errno.EISDIR: "choose a name that is not that of a folder",
    errno.ENAMETOOLONG: "choose a shorter name",
}
NOT_FINITE = "the model gives numbers that are not finite, so its weights are damaged; use another checkpoint, or another run"
WITHOUT_DASHES = {"text": "TEXT", "settings": "command line"}  # arguments of Python that are no options of the command line


def short(value: object) -> str:
    """`value` as Python writes it, cut if it is long."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."  # a path is not cut


def what_to_do(error: Exception, *others: str) -> str:
    """What helps against an error of the system on a file or a folder, after what else the caller has to offer."""
    known = TO_DO.get(getattr(error, "errno", None) or 0, "check the path, its permissions and the free space on its disk")
    return ", or ".join([*others, known])


def closest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The one of the `known` words that `word` is most like; None if it is like none."""
    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=cutoff)), None)


def nearest(word: str, known: Iterable[str] | Mapping[str, str], *, otherwise: str = "", cutoff: float = 0.6) -> str:
    """Which of the `known` words is meant by `word`, as a mapping shows them, or else what to do `otherwise`."""
    shown = known if isinstance(known, Mapping) else {one: one for one in known}
    close = closest(word, shown, cutoff=cutoff)
    return f"did you mean {shown[close]}?" if close else otherwise or f"use one of {', '.join(shown.values())}"


class Piece:
    """A part of a message that the command line and Python spell in their own ways; as a string, as the command line does."""

    def __str__(self) -> str:
        return IN_SHELL(self)  # type: ignore[arg-type]  # of the classes below


def flag(name: str, *, dash: str = "--") -> str:
    """The option of this keyword, as it is typed. `as_` and `continue_` are words of Python without their last character."""
    return f"{dash}{name.rstrip('_').replace('_', '-')}"


@dataclass(frozen=True)
class Option(Piece):
    """An option, or a setting if `name` is a section.key, with its value: `--minutes 10`, or `minutes=10` in Python."""

    name: str
    value: str | os.PathLike[str] | float | bool | Sequence[float] | None = None


@dataclass(frozen=True)
class Given(Piece):
    """The beginning of a message on the value of an option: `--top-k: -1 given; `, or `top_k=-1: ` in Python."""

    name: str
    value: object
    link: str = "; "


class Command(Piece):
    """A command of the user: `python train.py poems.txt`, or `chargpt.train('poems.txt')`; without a verb, its arguments."""

    def __init__(self, verb: Literal["train", "sample", ""], *words: str | Option) -> None:
        self.verb, self.words = verb, words


def resuming(run: str | os.PathLike[str], *more: Option, verb: Literal["train", ""] = "") -> Command:
    """The command, or only its arguments, that continues `run`."""
    return Command(verb, Option("resume", True), Option("run", run), *more)


class Message(Piece):
    """A text of several pieces, none of them a Message. Of an error, it keeps no more: a traceback keeps files open."""

    def __init__(self, *pieces: Words) -> None:
        self.pieces: list[str | Option | Given | Command] = []
        for piece in pieces:
            piece = piece.message if isinstance(piece, Problem) else piece
            self.pieces += piece.pieces if isinstance(piece, Message) else [piece]


def join(separator: str, words: Iterable[Words]) -> Message:
    """`words` with `separator` between them."""
    pieces = [piece for one in words for piece in (separator, one)]
    return Message(*pieces[1:])


class Problem(Exception):
    """Something that stops the program, with a message of one line: where it is, what was given, and what to do."""

    def __init__(self, *pieces: Words) -> None:
        self.message = Message(*pieces)
        super().__init__(str(self.message))

    def respell(self, names: Mapping[str, str]) -> None:
        """Name options of these names by others."""
        same = (
            replace(one, name=names.get(one.name, one.name)) if isinstance(one, Option) else one for one in self.message.pieces
        )
        self.message = Message(*same)
        self.args = (str(self.message),)


class UserError(Problem, ValueError):
    """A problem that only the user can solve. The message reads `where: what was given; what to do`."""


class NoSuchRun(UserError):
    """There is no run of this name, or it has no checkpoint."""


class RunExists(UserError):
    """A new run would have the name of another one."""


class UnknownCharacters(UserError):
    """A text has characters that are not in the vocabulary."""


class TextTooShort(UserError):
    """A text has fewer characters than what is asked for needs."""


class Damaged(UserError):
    """A file of a run, or the numbers in it, cannot be used."""


class Failed(Problem, RuntimeError):
    """What other arguments would not mend."""


class NotWritten(Failed):
    """What the machine refuses to write."""

    @staticmethod
    def of(error: OSError, *pieces: Words) -> NotWritten:
        """The kind for this error of the system."""
        return (NoSpace if error.errno in FULL else NotWritten)(*pieces)


class NoSpace(NotWritten):
    """A disk is full, or a quota is used up."""


class NoMemory(Failed):
    """A training or a model does not fit into the memory of this machine."""


class NotFinite(Failed):
    """A loss, a gradient or a weight is not a finite number. `step` is the step, counted from 0, whose batch caused it."""

    def __init__(self, *pieces: Words, step: int | None = None) -> None:
        super().__init__(*pieces)
        self.step = step


class Stopped(Failed):
    """A training was stopped before it had anything to save."""


def kind_of(problem: Problem) -> str:
    """The name of the kind of a problem in this module: a training tells it to the process that started it."""
    return next(kind.__name__ for kind in type(problem).__mro__ if kind.__module__ == __name__)


Words = str | Option | Given | Command | Message | Problem


class Shell:
    """How messages are spelled on the command line, or where else options begin with `dash`. Only this and Python know."""

    def __init__(self, dash: str = "--") -> None:
        self._dash = dash

    def __call__(self, words: Words) -> str:
        """`words`, as this user writes them."""
        spell: dict[type, Callable[[Any], str]] = {Option: self.option, Given: self.given, Command: self.command}
        return "".join(spell.get(type(piece), str)(piece) for piece in Message(words).pieces)

    def option(self, option: Option) -> str:
        """`--minutes 10`, or `train.max_steps=500`."""
        name, value = option.name, option.value
        if isinstance(value, Sequence) and not isinstance(value, str):
            typed = ",".join(map(str, value))
        else:
            typed = str(value).lower() if isinstance(value, bool) else str(value)
        if "." in name:
            return name if value is None else f"{name}={shell_word(typed)}"
        name = WITHOUT_DASHES.get(name) or flag(name, dash=self._dash)
        return name if value is None or value is True else f"{name} {shell_word(typed)}"

    def given(self, given: Given) -> str:
        value = f"{given.value:,.10g}" if isinstance(given.value, float) else short(given.value)
        return f"{self.option(Option(given.name))}: {value} given{given.link}"

    def command(self, command: Command) -> str:
        home = [Option("home", typed_home())] * bool(command.verb and typed_home())
        words = [shell_word(word) if isinstance(word, str) else self.option(word) for word in (*command.words, *home)]
        return " ".join([*[called(command.verb)] * bool(command.verb), *words])


class Python(Shell):
    """The library: arguments of its functions, and calls."""

    def option(self, option: Option) -> str:
        return option.name.replace("-", "_") if option.value is None else self._arguments([option])

    def given(self, given: Given) -> str:
        value = f"{given.value:.10g}" if isinstance(given.value, float) else short(given.value)
        return f"{given.name}={value}: "

    def command(self, command: Command) -> str:
        arguments = self._arguments(command.words)
        if command.verb == "sample":
            return f"chargpt.load({arguments}).generate()"
        return f"chargpt.train({arguments})" if command.verb else arguments

    def _arguments(self, words: Sequence[str | Option]) -> str:
        """Those of `chargpt.train` with these texts, options and settings."""
        texts = [repr(word) for word in words if isinstance(word, str)]
        given, settings = texts if len(texts) < 2 else [f"[{', '.join(texts)}]"], list[str]()
        for option in (word for word in words if isinstance(word, Option)):
            value = repr(str(option.value) if isinstance(option.value, os.PathLike) else option.value)
            if "." in option.name:
                settings.append(f"{option.name!r}: {value}")
            else:
                given.append(f"{option.name.replace('-', '_')}={value}")
        return ", ".join([*given, *[f"settings={{{', '.join(settings)}}}"] * bool(settings)])


IN_SHELL, IN_PYTHON = Shell(), Python()


def warn(words: Words) -> None:
    """Warn the caller of the library, at the line that called it, through however many of its functions."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and Path(frame.f_code.co_filename).is_relative_to(PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(IN_PYTHON(words), stacklevel=level)


@contextlib.contextmanager
def python_errors() -> Iterator[None]:
    """The edge of the library: a Problem that leaves this block reads as the library spells it."""
    try:
        yield
    except Problem as error:
        error.args = (IN_PYTHON(error),)
        raise
