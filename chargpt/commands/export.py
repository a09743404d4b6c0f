"""`python -m chargpt export RUN --to TARGET [OUT]`: a run in the format of another program.

Each format is a module with a function `write` (see `chargpt/exchange/export.py`). This module finds the run, calls that
function on a path aside, and publishes the result whole or not at all.
"""

import importlib
import re
from collections.abc import Sequence
from pathlib import Path

from chargpt.commands.frame import load_run, verb_parser
from chargpt.errors import UserError
from chargpt.exchange.export import TARGETS, ExportOptions, check_destination, check_target, publish
from chargpt.project import shell_word
from chargpt.terminal import notice, shown


def main(argv: Sequence[str]) -> int:
    """Export the run that the options in `argv` name. Returns the exit code. Raises UserError."""
    parser = verb_parser("export", "RUN --to TARGET [OUT] [--force]", "Write a run in the format of another program.")
    parser.add_argument("run", metavar="RUN", help="the name of a run, its path, or the path of one of its checkpoints")
    targets = "; ".join(f"{name}: {target.what}" for name, target in TARGETS.items())
    parser.add_argument("--to", required=True, choices=TARGETS, metavar="TARGET", help=targets)
    parser.add_argument(
        "destination", nargs="?", metavar="OUT", help="the file or folder (default: the name of the run and of the format)"
    )
    parser.add_argument(
        "--weights",
        choices=("float16", "int8"),
        help="html: how the page holds the weights; int8 halves its size and costs a little of the quality (default: float16)",
    )
    parser.add_argument("--force", action="store_true", help="replace an earlier export; nothing else is ever replaced")
    options = parser.parse_intermixed_args(argv)
    from chargpt.device import one_thread

    target = TARGETS[options.to]
    if options.weights and options.to != "html":
        raise UserError(f"--weights: {options.weights} given, which works only with --to html; leave it out")
    loaded = load_run(options.run, device="cpu")
    name = re.sub(r"[^\w.-]+", "-", loaded.run).strip(".-") or "run"  # it needs no quotes
    destination = Path(options.destination or name + target.suffix)
    is_folder = not target.suffix.startswith(".")
    check_destination(destination, is_folder=is_folder, force=options.force)
    check_target(options.to, loaded.model.config)
    corpus = loaded.find_corpus()
    export_options = ExportOptions(
        name=loaded.run,
        texts=[Path(text).name or text for text in loaded.texts],
        labels=() if corpus is None or corpus.items is None else tuple(corpus.items.labels),
        weights=options.weights or "float16",
    )
    write = importlib.import_module(target.module).write
    with one_thread():  # several threads save seconds on an idle machine, and cost minutes beside other programs
        publish(destination, lambda path: write(loaded, path, export_options), is_folder=is_folder, force=options.force)
    path = shown(destination)
    notice("written", path)
    notice("use", target.use.format(path=path, word=shell_word(path)))
    return 0
