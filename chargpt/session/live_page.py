"""The report of a run while it trains: written again and again, and opened in a browser on request."""

import time
import webbrowser

from chargpt.runs.checkpoint_schema import SavedState
from chargpt.runs.run import REPORT, Run
from chargpt.text.corpus import Corpus

FIRST = 0.1  # seconds that the first page is expected to take
APART = 100  # the time between two pages, as a multiple of what one takes


class LivePage:
    """The report of one run, for all of its models; in a browser, if it `opens`."""

    def __init__(self, *, opens: bool) -> None:
        self._opens, self._seconds, self._last = opens, FIRST, time.perf_counter()

    @property
    def is_due(self) -> bool:
        """Whether a page takes at most a hundredth of the time since the last one."""
        return time.perf_counter() - self._last >= APART * self._seconds

    def write(self, run: Run, state: SavedState, corpus: Corpus, *, is_training: bool) -> None:
        """Write the page by what is logged; a browser reads that of a run in training again. Never raises."""
        from chargpt.pages.report_page import write_live_report  # not before the first step

        began = time.perf_counter()
        write_live_report(run.folder, state, corpus, is_training=is_training)
        self.open(run)
        self._last = time.perf_counter()
        self._seconds = max(FIRST, self._last - began)

    def open(self, run: Run) -> None:
        """Open the page in a browser, once, if that was asked for."""
        if self._opens and run.folder == run.home:
            self._opens = not webbrowser.open((run.folder / REPORT).resolve().as_uri())
