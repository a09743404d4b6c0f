"""The report that a training writes into its run when it ends. Nothing that goes wrong here may fail a finished training."""

import os
from pathlib import Path

from chargpt.analysis.copies import index_for_training
from chargpt.interrupt import ending_at_once
from chargpt.pages.page import publish_page
from chargpt.sampling.loaded_model import load_model
from chargpt.terminal import one_line, shown
from chargpt.text.corpus import Corpus

REPORT = "report.html"


def write_final_report(folder: Path, corpus: Corpus, *, device: str, ngram_loss: float, if_stopped: str) -> tuple[str, str]:
    """Write report.html on the run in `folder`, of its best checkpoint. Returns a notice: its label, and what it says.

    It measures less than `python -m chargpt report` does, so that it takes a few seconds. A signal meanwhile prints
    `if_stopped` and ends the program. `ngram_loss` is the loss of an n-gram model of the text.
    """
    path = folder / REPORT
    try:
        with ending_at_once(notice=f"{if_stopped}\n"):
            # Imported at the end of a training, so that its start does not wait for pictures and pages.
            from chargpt.analysis.run_report import measure_run, quick
            from chargpt.pages.report_page import report_page

            loaded, _ = load_model(os.path.abspath(folder), folder, device=device)
            effort = quick(loaded.model, corpus.val)
            index = index_for_training(corpus)
            content = report_page(
                [measure_run(loaded, corpus, folder=folder, index=index, effort=effort, ngram_loss=ngram_loss)]
            )
        publish_page(path, content)
    except Exception as problem:  # no kind of failure here may end a run
        reason = (
            problem.strerror if isinstance(problem, OSError) and problem.strerror else f"{type(problem).__name__}: {problem}"
        )
        return "warning", f"{shown(path)}: not written ({one_line(reason)}); the run is complete without it"
    return "report", shown(path)
