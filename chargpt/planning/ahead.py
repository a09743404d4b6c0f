"""What comes before torch is imported, and meanwhile: mistakes are reported at once, and the text is read in a thread."""

import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from chargpt.config import Config
from chargpt.planning.cli import SHORTEST_CONTEXT, TrainOptions, by_fields, is_one_of_several, parse_sweep
from chargpt.project import NO_START, project_root
from chargpt.runs.run import folder_of, new_folder
from chargpt.settings import COMMAND_LINE, Settings, apply
from chargpt.text.sources import check_found


def check_command_line(argv: Sequence[str] | None = None) -> Callable[[], None]:
    """Raise UserError for a mistake in `argv` (None: that of the process). Of several processes, one reports it in train.py.
    Returns what can be done for the program while torch is imported."""
    if is_one_of_several():
        return lambda: None
    options = parse_sweep(argv)[0]
    if not (options.resume or options.continue_):  # which look for a run first
        check_places(options, root=project_root())
    import chargpt.text.corpus  # noqa: F401  # and numpy: two threads do not import the same

    return functools.partial(read_ahead, options)


def check_places(options: TrainOptions, *, root: Path) -> Path:
    """The folder of a new run. Raises UserError for a missing start or text, and for a run that exists. Needs no torch."""
    if options.start not in (None, NO_START):
        from chargpt.runs.load import read_card  # most runs name no start

        read_card(str(options.start))
    check_found(options.texts)
    if options.dry_run or options.find_lr:
        return folder_of(options.name, root / "checkpoints")
    return new_folder(options.name, root / "checkpoints", overwrite=options.overwrite)


def read_ahead(options: TrainOptions) -> None:
    """Encode and measure the text of these options into the cache, where the plan finds it. What fails, fails again there.

    Nothing is done for a run that has its text in another form, by a file, a start or another run, nor for what is read once.
    """
    others = (options.config, options.start not in (None, NO_START), options.init_from, options.vocab_from)
    files = [*options.texts, *filter(None, [str(options.settings.get("data", {}).get("val_text", ""))])]
    if options.resume or any(others) or not all(text != "-" and os.path.isfile(text) or os.path.isdir(text) for text in files):
        return
    from chargpt.text.corpus import load_corpus

    with contextlib.suppress(Exception):
        typed = options.settings.get("data", {})
        config = by_fields(Settings(apply(Config(), {"data": typed}, where=COMMAND_LINE)), options.settings).values.data
        load_corpus(options.texts, config, root=project_root(), block_size=SHORTEST_CONTEXT, asked=typed).facts  # noqa: B018
