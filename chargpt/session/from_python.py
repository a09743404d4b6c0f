"""`chargpt.start` and `chargpt.train`: from arguments of Python to the process that trains."""

import dataclasses
import json
import numbers
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack

from chargpt.errors import Stopped, UserError
from chargpt.keywords import named
from chargpt.option_table import PathLike, Values, check, one_of
from chargpt.planning.cli import PATHS, TrainKeywords, TrainOptions, check_options, tree_of
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.session.training import SCREENS, Training
from chargpt.text.sources import DEFAULT

SETTINGS = Values("a dict, for example {'train.max_steps': 500}", lambda given: {**given})  # TypeError for what is no mapping


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
    return _begin(options_for(text, settings, **options), show)


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
    training = _begin(options_for(text, settings, **options), show)
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


def _begin(options: TrainOptions, show: str) -> Training:
    screen = SCREENS[check("show", show, one_of(*SCREENS))]()
    device = str(options.settings.get("runtime", {}).get("device", "auto"))
    return Training(json.dumps(dataclasses.asdict(options)), screen=screen, device=device)


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
