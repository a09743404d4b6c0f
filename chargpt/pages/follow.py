"""The process that writes the report of a run: by its log while it trains, and by what its model does when it is complete.

It reads what is on disk, and writes report.html; the training (`Follower` of chargpt/session/follower.py) never waits for it
before its end. Standard input stays open while the run trains. When it closes, the training has ended: complete if something
was written before, otherwise stopped or killed. What is then printed is why there is no page of a complete run.
"""

import contextlib
import dataclasses
import gc
import json
import os
import sys
import threading
import time
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chargpt.project import METRICS, REPORT
from chargpt.runs.renamed_folder import RenamedFolder

LOOKS = 1.0  # seconds between two looks at the log
SHARE = 0.01  # of the time since the beginning, that a processor works here while the run trains
FIRST = 0.1  # seconds of a processor that the first page may take of that; it takes some more, for what is imported
REFRESH = 5  # seconds between two looks of a browser at the report of a run in training
MISSING = "what is measured on the model at the end of the training"


@dataclasses.dataclass(kw_only=True)
class Following:
    """The report of the run in `folder`, which is renamed to `home` if it replaces another run there, or by a person."""

    folder: str
    home: str
    device: str  # on which the model of a complete run is measured
    text: Mapping[str, Any]  # fields of its Corpus that no cache has
    opens: bool  # whether the page is to be opened in a browser: once, when it is in its place

    def __post_init__(self) -> None:
        self._run = RenamedFolder(Path(self.folder))

    def while_training(self, ended: threading.Event) -> None:
        """Write the page whenever the log has grown, in at most SHARE of the time, until the training has `ended`."""
        started, size, page = time.perf_counter(), 0, FIRST - time.process_time()
        if sys.platform == "linux":  # where this is about one thread: the page of a complete run is not to wait for others
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        while not ended.wait(LOOKS):
            used = time.process_time()
            with contextlib.suppress(OSError):
                grown = os.path.getsize(self._run.path / METRICS)
                if grown != size and used + page <= SHARE * (time.perf_counter() - started):
                    size = grown
                    self.write_logged(refresh=REFRESH)
                    page = time.process_time() - used

    def write_logged(self, *, refresh: int = 0) -> None:
        """Write the page by what is logged, which a browser reads again every `refresh` seconds; 0: never. Never raises."""
        with contextlib.suppress(Exception):  # such as a full disk, or a run without a checkpoint yet
            from chargpt.analysis.run_facts import logged_facts
            from chargpt.pages.report_page import report_page

            self._publish(report_page([logged_facts(self._run.path, missing=MISSING)], refresh=refresh))

    def write_complete(self) -> str:
        """Write the page of a complete run, of its best checkpoint. Returns why there is none; empty if there is.

        It measures less than `python -m chargpt report` does, so that it takes a few seconds.
        """
        gc.disable()  # as in launch.py; the process ends soon
        try:
            from chargpt.analysis.measured_run import measure_run, quick
            from chargpt.pages.report_page import report_page
            from chargpt.sampling.loaded_model import load_model
            from chargpt.text.suffix_array import index_for_training

            loaded, _ = load_model(str(self._run.path), self._run.path, device=self.device)
            corpus, index = loaded.find_corpus(), None
            if corpus is not None:
                corpus = dataclasses.replace(corpus, **self.text)
                index = index_for_training(corpus)
            self._publish(report_page([measure_run(loaded, corpus, index=index, effort=quick(loaded.parameters))]))
        except Exception as problem:  # of any kind
            self.write_logged()
            reason = problem.strerror if isinstance(problem, OSError) else None
            return reason or f"{type(problem).__name__}: {problem}"
        return ""

    def _publish(self, content: str) -> None:
        from chargpt.pages.page import publish_page

        path = self._run.path / REPORT
        publish_page(path, content)
        if self.opens and self._run.path == Path(self.home):
            self.opens = not webbrowser.open(path.resolve().as_uri())


def run(asked: str) -> None:
    """The process, for a `Following` in JSON."""
    training, outcome = os.dup(0), os.dup(1)
    for stream in (0, 1):  # or a browser that is opened would hold the pipes open
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    following, ended = Following(**json.loads(asked)), threading.Event()
    thread = threading.Thread(target=following.while_training, args=[ended])
    thread.start()
    is_complete = bool(os.read(training, 1))
    ended.set()
    thread.join()
    if is_complete:
        os.write(outcome, following.write_complete().encode())
    else:
        following.write_logged()
