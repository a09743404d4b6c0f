"""The library behind train.py and sample.py.

>>> import chargpt
>>> model = chargpt.train("poems.txt", minutes=10)  # as train.py does, into the same folder
>>> with chargpt.start("poems.txt", minutes=10) as training:  # the same in the background
...     for now in training:
...         print(now.step, now.val_loss)
>>> [(run.run, run.state, run.loss) for run in chargpt.runs()]
>>> model = chargpt.load("poems")  # in another session
>>> print(model.generate("The sea", length=200, seed=1))
>>> for piece in model.stream("The sea"):  # as it is written
...     print(piece, end="", flush=True)
>>> model.items(20, label="Finnish", unique=True, new=True)  # of a run on items
>>> model.score("The sea is calm tonight.")  # nats per character
>>> model.score(["The sea is calm.", "The sea is green."])  # many texts at once
>>> model.logits("The sea")  # (7, vocab_size)
>>> model.attention("The sea")  # (n_layer, n_head, 7, 7)
>>> model.export("html")  # as `python -m chargpt export` does
"""

TYPE_CHECKING = False  # as in typing, whose import takes time in which `python -m chargpt` cannot handle a signal yet
if TYPE_CHECKING:
    from chargpt.commands.report import report
    from chargpt.errors import (
        Damaged,
        Failed,
        NoMemory,
        NoSpace,
        NoSuchRun,
        NotFinite,
        NotWritten,
        RunExists,
        Stopped,
        TextTooShort,
        UnknownCharacters,
    )
    from chargpt.notices import TrainingProgress
    from chargpt.runs.listing import RunState, runs
    from chargpt.sampling.loaded_model import LoadedModel, load
    from chargpt.session.training import Training, start, train
    from chargpt.text.item_stream import Item

    __version__: str

PLACES = {  # of what is no kind of error
    "chargpt.commands.report": ("report",),
    "chargpt.notices": ("TrainingProgress",),
    "chargpt.runs.listing": ("RunState", "runs"),
    "chargpt.sampling.loaded_model": ("LoadedModel", "load"),
    "chargpt.session.training": ("Training", "start", "train"),
    "chargpt.text.item_stream": ("Item",),
}
__all__ = ["Item", "LoadedModel", "RunState", "Training", "TrainingProgress", "load", "report", "runs", "start", "train"]
__all__ += ["Damaged", "Failed", "NoMemory", "NoSpace", "NoSuchRun", "NotFinite", "NotWritten", "RunExists", "Stopped"]
__all__ += ["TextTooShort", "UnknownCharacters", "__version__"]


def __getattr__(name: str) -> object:
    """What is imported, or read, when it is asked for: that takes time."""
    if name == "__version__":
        from chargpt.project import version

        return version()
    if name in __all__:
        import importlib

        place = next((module for module, names in PLACES.items() if name in names), "chargpt.errors")
        return getattr(importlib.import_module(place), name)
    raise AttributeError(f"module 'chargpt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
