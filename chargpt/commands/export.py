"""`python -m chargpt export RUN --to TARGET [OUT]`: a run, or a start, in the format of another program."""

from argparse import Namespace
from collections.abc import Sequence
from functools import partial

from chargpt.commands.common import SHARED, load_run, verb_parser
from chargpt.errors import Option, UserError
from chargpt.exchange.export import TARGETS, export
from chargpt.formatting import shown
from chargpt.notices import Kind
from chargpt.project import shell_word
from chargpt.screen import notice


def main(argv: Sequence[str]) -> int:
    """Export the run that the options in `argv` name. Returns the exit code. Raises UserError."""
    options = _options(argv)
    loaded = None if options.blank else load_run(options.run, device="cpu")
    form = {"weights": options.weights or "float16", "learns": not options.write_only, "force": options.force}
    path = shown(export(loaded, options.to, options.destination, **form, tell=partial(notice, Kind.NOTE)))
    notice(Kind.WRITTEN, path)
    notice(Kind.USE, TARGETS[options.to].use.format(path=path, word=shell_word(path)))
    return 0


def _options(argv: Sequence[str]) -> Namespace:
    """The options in `argv`. Raises UserError for those that do not go together."""
    usage = "RUN --to TARGET [OUT] [--force] | --to html --blank [OUT]"
    parser = verb_parser("export", usage, "Write a run in the format of another program.")
    add = parser.add_argument
    add("run", nargs="?", metavar="RUN", help=SHARED["run"]["help"])
    targets = "; ".join(f"{name}: {target.what}" for name, target in TARGETS.items())
    add("--to", required=True, choices=TARGETS, metavar="TARGET", help=targets)
    add("destination", nargs="?", metavar="OUT", help="the file or folder (default: the name of the run and of the format)")
    weights = "html: how the page holds the weights; int8 halves its size and costs a little of the quality (default: float16)"
    add("--weights", choices=("float16", "int8"), help=weights)
    add("--write-only", action="store_true", help="html: the page writes and does not learn, which makes it 0.1 MB smaller")
    add("--blank", action="store_true", help="html: a page without a model, which learns from the first text that it is given")
    add("--force", action="store_true", help="replace an earlier export; nothing else is ever replaced")
    options = parser.parse_intermixed_args(argv)
    for name in ("weights", "write_only", "blank"):
        if getattr(options, name) and options.to != "html":
            raise UserError(Option(name), ": works only with --to html; leave it out")
    if options.blank and (options.write_only or options.weights or options.destination):
        raise UserError(Option("blank"), ": a page without a model, which must learn; give OUT and --force alone with it")
    if options.blank:
        options.run, options.destination = None, options.run
    elif options.run is None:
        what = "RUN: missing; name a run or a start, or give "
        raise UserError(what, Option("blank"), " for a page that has learned nothing")
    return options
