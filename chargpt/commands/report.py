"""`python -m chargpt report`: what a run was, and what its model has learned, as one HTML page."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chargpt.commands.options import page_file, say
from chargpt.pages.charts import COLOURS
from chargpt.project import project_root
from chargpt.terminal import Parser, UserError, one_line, shown

MAX_RUNS = COLOURS  # of a page: each run has a colour of its own


def main(argv: Sequence[str]) -> int:
    """Write the page that the options ask for. Returns the exit code."""
    options = parse_options(argv)
    from chargpt.pages.page import publish_page
    from chargpt.pages.report_page import report_page
    from chargpt.runs.load import expand_patterns

    names = expand_patterns(options.runs, project_root() / "checkpoints")
    if len(names) > MAX_RUNS:
        raise UserError(f"RUN: {len(names)} given; a report compares at most {MAX_RUNS}")
    runs = [measured(name, device=options.device) for name in names]
    content = report_page(runs)
    if options.out.exists():
        say(f"{shown(options.out)}: replaces an older page; --out gives the page another name")
    publish_page(options.out, content)
    say(f"{len(content.encode()) / 1e6:.2f} MB")
    print(one_line(shown(options.out)))
    return 0


def parse_options(argv: Sequence[str]) -> argparse.Namespace:
    """The options in `argv`. Raises UserError."""
    parser = Parser(
        prog="python -m chargpt report",
        usage="python -m chargpt report RUN [RUN ...] [option ...]",
        description="Write a page on a run: its curves, samples over time, which lines of the validation part its model "
        "predicts best and worst, what it copies, where its loss sits, what its heads attend to, settings and machine. Several "
        "runs share the charts. It is one file, which works offline. Training writes a shorter report.html into the run when "
        "it ends.",
    )
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help=f"runs in checkpoints/, their paths, patterns such as 'poems*', or the paths of checkpoints; at most {MAX_RUNS}",
    )
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cpu, cuda, cuda:N or mps")
    parser.add_argument(
        "--out", type=page_file, default=Path("report.html"), metavar="FILE", help="the page (default: report.html)"
    )
    return parser.parse_intermixed_args(argv)


def measured(name: str, *, device: str) -> Any:
    """The RunReport of the run `name`."""
    from chargpt.analysis.run_report import WHOLE, measure_run
    from chargpt.commands.loaded_run import corpus_of_run, load_run
    from chargpt.text.suffix_array import open_or_make_index

    loaded = load_run(name, device=device)
    corpus = index = None
    try:
        corpus = corpus_of_run(loaded)
        index = open_or_make_index(corpus)
    except UserError as error:
        say(f"warning: {error}")
    return measure_run(loaded, corpus, folder=loaded.path.resolve().parent, index=index, effort=WHOLE)
