"""The library behind train.py and sample.py.

>>> import chargpt
>>> model = chargpt.train("poems.txt", minutes=10)  # as train.py does, into the same folder
>>> model = chargpt.load("poems")  # in another session
>>> print(model.generate("The sea", length=200, seed=1))
>>> for piece in model.stream("The sea"):  # as it is written
...     print(piece, end="", flush=True)
>>> model.items(20, label="Finnish", unique=True, new=True)  # of a run on items
>>> model.score("The sea is calm tonight.")  # nats per character
>>> model.score(["The sea is calm.", "The sea is green."])  # many texts at once
>>> model.logits("The sea")  # (7, vocab_size)
>>> model.attention("The sea")  # (n_layer, n_head, 7, 7)
"""

import os

from chargpt.keywords import named

TYPE_CHECKING = False  # as in typing, whose import takes time in which `python -m chargpt` cannot handle a signal yet
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Literal

    from chargpt.errors import TrainingFailed
    from chargpt.sampling.loaded_model import LoadedModel
    from chargpt.text.items import Item

    __version__: str

LAZY = {"Item": "chargpt.text.items", "LoadedModel": "chargpt.sampling.loaded_model", "TrainingFailed": "chargpt.errors"}
__all__ = ["Item", "LoadedModel", "TrainingFailed", "__version__", "load", "train"]


@named
def load(
    run: str | os.PathLike[str] | None = None,
    *,
    start: str | None = None,
    device: str = "auto",
    precision: "Literal['float32', 'bfloat16', 'int8']" = "float32",
) -> "LoadedModel":
    """The trained model of `run`, its best checkpoint: see `LoadedModel`.

    `run` is the name of a run in the folder checkpoints, the path of a run, or the path of one of its checkpoints;
    None is the newest run. `start` names a model that comes with the program, in place of a run. `device` is auto, cpu, cuda,
    cuda:N or mps. `precision`, to which the weights are rounded, is float32, bfloat16 or int8. Warns if the best checkpoint is
    damaged and another one is used. Raises ValueError for another precision, if there is no such run or start, and if no
    checkpoint of it can be used.
    """
    from chargpt.errors import UserError, warn
    from chargpt.project import project_root
    from chargpt.sampling.loaded_model import load_model  # imports torch, which takes seconds

    name = None if run is None else str(run)
    if start is not None and name is not None:
        raise UserError(f"start={start!r}: given together with run={name!r}; leave one out")
    loaded, problems = load_model(name, project_root() / "checkpoints", start=start, device=device, precision=precision)
    for problem in problems:
        warn(problem)
    return loaded


@named
def train(
    text: "str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None" = None,
    *,
    minutes: float | str | None = None,
    epochs: float | None = None,
    run: str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    config: str | os.PathLike[str] | None = None,
    settings: "Mapping[str, object] | None" = None,
    start: str | None = None,
    init_from: str | os.PathLike[str] | None = None,
    vocab_from: str | os.PathLike[str] | None = None,
    teacher: "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]" = (),
    device: str | None = None,
) -> "LoadedModel":
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
    from chargpt.session.from_python import train_run

    folder = train_run(
        text,
        settings=settings,
        resume=resume,
        overwrite=overwrite,
        run=run,
        minutes=minutes,
        epochs=epochs,
        config=config,
        start=start,
        init_from=init_from,
        vocab_from=vocab_from,
        teacher=teacher,
        device=device,
    )
    return load(folder, device=device or "auto")


def __getattr__(name: str) -> object:
    """What is computed when it is asked for: reading the version, and importing torch, take time."""
    if name == "__version__":
        from chargpt.project import version

        return version()
    if name in LAZY:
        import importlib

        return getattr(importlib.import_module(LAZY[name]), name)
    raise AttributeError(f"module 'chargpt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
