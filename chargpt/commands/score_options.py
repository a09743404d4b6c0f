"""The options of `python -m chargpt score`. Nothing here imports torch, so that --help is answered at once."""

import argparse
from collections.abc import Sequence

from chargpt.commands.frame import add_run_options, page_file
from chargpt.terminal import Parser, UserError, whole_number


def parse_options(argv: Sequence[str]) -> argparse.Namespace:
    """The options in `argv`. Raises UserError."""
    parser = Parser(
        prog="python -m chargpt score",
        usage="python -m chargpt score RUN [TEXT ...] [option ...]",
        description="How well a trained model predicts a text: bits per character and per byte, beside gzip, bzip2, xz, zstd "
        "and an n-gram model. The first character of a text is not predicted. A character that the model does not know costs "
        "20.1 bits, a choice among all code points of Unicode, and the model does not see it.",
    )
    add = parser.add_argument
    add_run_options(parser)
    add(
        "texts",
        nargs="*",
        default=[],
        metavar="TEXT",
        help="a file, a folder, - for standard input, or a named corpus, read as in training; several give a line each and a "
        "total (default: the validation part of the run's own text)",
    )
    add(
        "--stride",
        type=whole_number(1),
        metavar="N",
        help="begin a window every N characters; each character is then predicted from at least the context less N characters "
        "(default: half of the context). The model's whole context as N gives the windows, and the loss, of the validation",
    )
    add(
        "--compare",
        metavar="RUN",
        help="score with this run too, and print the lines on which the two differ most, in bits, most different first",
    )
    add("--top", type=whole_number(1), default=20, metavar="N", help="how many lines --compare prints (default: 20)")
    output = parser.add_argument_group("what is printed, besides the totals, which then go to standard error")
    either = output.add_mutually_exclusive_group().add_argument
    either("--lines", action="store_true", help="the bits of each line")
    either("--surprise", action="store_true", help="the text, each character coloured by how little the model expected it")
    either(
        "--json", action="store_true", help="a JSON object for each line, with the bits of each character, and one of totals"
    )
    output.add_argument(
        "--html", type=page_file, metavar="FILE", help="also write a page that shows the text coloured, to open in a browser"
    )
    options = parser.parse_intermixed_args(list(argv))
    unused = {"--lines": options.lines, "--surprise": options.surprise, "--html": options.html}
    if options.compare is not None and any(unused.values()):
        other = next(name for name, given in unused.items() if given)
        raise UserError(f"--compare: {other} given as well; leave out one of the two")
    return options
