"""`chargpt.train`: from arguments of Python to the command line of train.py, and from how it ended to a run or an error."""

import difflib
import numbers
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from chargpt.aliases import alias
from chargpt.arguments import in_python, python_errors
from chargpt.config import RENAMED, Config, to_dict
from chargpt.planning.cli import check_command_line
from chargpt.project import project_root
from chargpt.runs.checkpoint import steps
from chargpt.runs.run import folder_of, name_of_student, names_of_teachers
from chargpt.session.child import train_in_child
from chargpt.terminal import UserError, shown
from chargpt.text.sources import DEFAULT, NAMES, run_name

KEYS = [f"{section}.{key}" for section, keys in to_dict(Config()).items() for key in keys]
ARGUMENTS = ("text", "minutes", "epochs", "run", "resume", "config", "start", "init_from", "vocab_from", "device")

PathLike = str | os.PathLike[str]


def train_run(
    text: PathLike | Sequence[PathLike] | None,
    *,
    settings: Mapping[str, object] | None,
    resume: bool,
    run: PathLike | None,
    **options: object,
) -> Path:
    """Train with these arguments of `chargpt.train`, and return the folder of the run.

    Raises UserError for a mistake, KeyboardInterrupt if an interrupt came before there was anything to save, and RuntimeError
    if the training failed.
    """
    if not isinstance(resume, bool):
        name = f", run={os.fspath(resume)!r}" if isinstance(resume, (str, os.PathLike)) else ""
        raise UserError(f"resume={resume!r}: use True or False; to continue a run, write resume=True{name}")
    texts = _texts(text)
    _check_types({"run": run, **options}, settings)
    name = None if run is None else os.fspath(run)
    checkpoints = project_root() / "checkpoints"
    with python_errors():
        if resume:
            from chargpt.session.resumed import run_to_resume  # takes a second, with torch

            folder = run_to_resume(name, texts, checkpoints)
            name = str(folder)
        else:
            folder = folder_of(run_name(texts) if name is None else name, checkpoints)
    arguments = command_line(texts, settings=settings or {}, resume=resume, options={"run": name, **options})
    with python_errors():
        check_command_line(arguments)
    ended = train_in_child(arguments)
    if ended.code == 2:
        raise UserError(in_python(ended.error))
    trained = _newest(folder)
    if ended.interrupted or ended.code > 128:
        if trained is None:
            raise KeyboardInterrupt
        again = f"chargpt.train(resume=True, run={shown(trained) if trained.parent != checkpoints else trained.name!r})"
        print(f"what was saved is returned; to continue: {again}", flush=True)
    elif ended.code:
        reason = ended.error or f"the process of the training ended with code {ended.code}; its last lines are above"
        saved = "" if trained is None else f"; the last checkpoint: chargpt.load({shown(trained)!r})"
        raise RuntimeError(in_python(reason) + saved)
    assert trained is not None, folder
    return trained


def _check_types(options: Mapping[str, object], settings: object) -> None:
    """Raise UserError for an argument of a type that train.py would not understand."""
    for name in ("run", "config", "init_from", "vocab_from"):
        if not isinstance(value := options.get(name), (str, os.PathLike, type(None))):
            raise UserError(f"{name}={value!r}: use a name or a path")
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
        raise UserError(f"text={text!r}: use the path of a file or folder, or a list of paths")
    if text is not None and not given:
        raise UserError(f"text={text!r}: no text in the list; give a path or more, or leave out text to train on {DEFAULT}")
    texts = []
    for one in given:
        if not isinstance(one, (str, os.PathLike)):
            raise UserError(f"text={one!r}: use the path of a file or folder, or a list of paths")
        path = os.fspath(one)
        if "\n" in path and not os.path.exists(path):
            raise UserError("text: a text given, not the path of one; write it to a file first, and give the name of that file")
        if path == "-":
            raise UserError("text='-': standard input is for the command line; use the path of a file")
        # A path that looks like an option or a setting is still a path.
        plain = path in NAMES or not (path.startswith("-") or "=" in path)
        texts.append(path if plain or os.path.isabs(path) else os.path.join(os.curdir, path))
    return texts


def _newest(folder: Path) -> Path | None:
    """The run that was trained last: the one in `folder`, a teacher of it or its student. None if there is no checkpoint."""
    name = name_of_student(folder.name) or folder.name
    folders = [folder.with_name(each) for each in (name, *names_of_teachers(name))]
    found = [steps(path)[-1:] for path in folders if path.is_dir()]
    newest = max((path for paths in found for path in paths), key=lambda path: path.stat().st_mtime, default=None)
    return None if newest is None else newest.parent


def command_line(
    texts: Sequence[str], *, settings: Mapping[str, object], resume: bool, options: Mapping[str, object]
) -> list[str]:
    """The arguments of train.py for these texts, settings and options; an option that is None is left out. Raises UserError."""
    arguments = [*texts, *["--resume"] * resume]
    for name, value in options.items():
        if value is not None:
            given = os.fspath(value) if isinstance(value, os.PathLike) else value
            arguments.append(f"--{name.replace('_', '-')}={given}")
    for key, value in settings.items():
        key = RENAMED.get(key, key)
        if key not in KEYS:
            raise UserError(f"settings: {key!r} given; {_instead(key)}")
        arguments.append(f"{key}={_typed(value, key)}")
    return arguments


def _instead(key: object) -> str:
    """What to write in place of a key of `settings` that is not one of ours."""
    name = str(key).rpartition(".")[2]
    theirs = alias(name)
    ours = re.split("[ ,]", theirs or name)[0]
    argument = ours.removeprefix("--").replace("-", "_").lower()
    if argument in ARGUMENTS:
        return f"use the argument {argument}"
    if theirs:
        return f"use {ours!r}" if ours in KEYS else f"use {theirs}"
    same = [known for known in KEYS if known.endswith(f".{name}")]
    close = same or (difflib.get_close_matches(str(key), KEYS, n=1) if "." in str(key) else []) or _close_names(name)
    return f"use {' or '.join(map(repr, close))}" if close else "use section.key, for example {'train.max_steps': 500}"


def _close_names(name: str) -> list[str]:
    close = difflib.get_close_matches(name, [key.rpartition(".")[2] for key in KEYS], n=1)
    return [key for key in KEYS if close and key.endswith(f".{close[0]}")]


def _typed(value: object, key: str) -> str:
    """A value as it is typed on the command line."""
    if isinstance(value, (list, tuple)):
        return ",".join(_typed(item, key) for item in value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, numbers.Real, os.PathLike)):  # also a number of numpy
        return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
    raise UserError(f"settings: {key}={value!r} given; use a number, a str, a bool or a tuple")
