"""`python -m chargpt report`: what a run was, and what its model has learned, as one HTML page."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chargpt.commands.common import load_run, page_file, verb_parser, write_page
from chargpt.errors import Problem, UserError
from chargpt.formatting import shown
from chargpt.notices import Kind
from chargpt.option_table import PathLike, named
from chargpt.project import project_root
from chargpt.runs.load import expand_patterns
from chargpt.screen import SCREEN, log

if TYPE_CHECKING:  # imports torch
    from chargpt.analysis.run_facts import RunFacts
    from chargpt.sampling.loaded_model import LoadedModel
    from chargpt.text.corpus import Corpus

ONE, SEVERAL = "report.html", "comparison.html"  # the page of one run, and of several


def main(argv: Sequence[str]) -> int:
    """Write the page that the options in `argv` ask for. Returns the exit code. Raises UserError."""
    about = """Write a page on a run: its curves, samples over time, which lines of the validation split its model predicts best
    and worst, what it copies, which characters are hard to predict, what its heads attend to, settings and machine. Several
    runs share the charts; those that differ by their seed alone are one curve there, their mean, with a band of one standard
    deviation. It is one file, which works offline. Training writes a shorter report.html into the run when it ends."""
    parser = verb_parser("report", "RUN [RUN ...] [option ...]", about, "--device")
    runs = "runs in checkpoints/, their paths, patterns such as 'poems*', or the paths of checkpoints"
    parser.add_argument("runs", metavar="RUN", nargs="+", help=runs)
    default = f"(default: {ONE}, and for several runs {SEVERAL})"
    parser.add_argument("--out", type=page_file, metavar="FILE", help=f"the page {default}")
    options = parser.parse_intermixed_args(argv)
    path, content = _page(options.runs, options.out, device=options.device)
    write_page(path, content)
    log(f"{len(content.encode()) / 1e6:.2f} MB")
    return 0


@named
def report(*runs: PathLike, out: PathLike | None = None, device: str = "auto") -> Path:
    """Write the page of `python -m chargpt report` on these runs to `out`, and return its path. Warnings go to the logger
    "chargpt". Raises NoSuchRun, a ValueError."""
    from chargpt.pages.page import publish_page
    from chargpt.session.training import Logged

    before = SCREEN.set(Logged())
    try:
        path, content = _page([os.fspath(run) for run in runs], out, device=device)
        publish_page(path, content)
    finally:
        SCREEN.reset(before)
    return path


def _page(names: Sequence[str], out: PathLike | None, *, device: str) -> tuple[Path, str]:
    """Where the page on the runs of these names and patterns is to be, and the page. Raises UserError."""
    expanded = expand_patterns(names, project_root() / "checkpoints")
    if not expanded:
        raise UserError("report: no run is named; name one or more")
    from chargpt.analysis.measured_run import compared
    from chargpt.pages.report_page import report_page, same_text

    runs = compared([_report_of(name, device=device) for name in expanded])
    if not same_text(runs) and runs[0].shared_loss is None:
        log("the runs differ in the text, its split or its vocabulary, so their losses cannot be compared", Kind.WARNING)
    return Path(out or (ONE if len(expanded) == 1 else SEVERAL)), report_page(runs)


def _report_of(name: str, *, device: str) -> "tuple[RunFacts, LoadedModel | None, Corpus | None]":
    """What is shown of the run `name`, its model and its text; of one of another model.py, only what is logged."""
    from chargpt.analysis.measured_run import WHOLE, measure_run
    from chargpt.analysis.run_facts import logged_facts
    from chargpt.runs.checkpoint_schema import OtherModelError
    from chargpt.runs.load import find_run
    from chargpt.text.suffix_array import open_or_make_index

    folder = find_run(name, project_root() / "checkpoints")
    try:
        loaded = load_run(name, device=device)
        if loaded.changed:
            raise OtherModelError(loaded.changed)
    except OtherModelError as error:
        what = "the page has its curves, but nothing that is measured on its model"
        log(f"{shown(name)}: {what} ({error})", Kind.WARNING)
        return logged_facts(folder, missing="what is measured on its model"), None, None
    corpus, index = None, None
    try:
        corpus = loaded.corpus()
        index = open_or_make_index(corpus)
    except Problem as error:
        log(error, Kind.WARNING)
    return measure_run(loaded, corpus, index=index, effort=WHOLE), loaded, corpus
