"""The report of a run, from the side of the training: it costs a process of its own, and nothing else if that is lost."""

import contextlib
import json
import subprocess
import time

from chargpt.formatting import shown
from chargpt.interrupt import Interrupt
from chargpt.notices import Kind, Notice
from chargpt.project import REPORT
from chargpt.runs.run import Run
from chargpt.session.python_process import start
from chargpt.text.corpus import Corpus

LOOKS = 0.02  # seconds between two looks at whether the report is complete
LATE = 2.0  # seconds after its time that a run waits for it, at most: as `Budget` promises


class Follower:
    """The process of chargpt/pages/follow.py for the report of `run`. It ends after its page when this process is gone."""

    def __init__(self, run: Run, corpus: Corpus, *, device: str, opens: bool) -> None:
        self._run, self._problem = run, ""
        text = {"notes": [str(note) for note in corpus.notes], "ends_in_validation": corpus.ends_in_validation}
        places = {"folder": str(run.folder.absolute()), "home": str(run.home.absolute())}
        asked = json.dumps({**places, "device": device, "text": text, "opens": opens})
        self._process: subprocess.Popen[str] | None = None
        try:
            self._process = start("chargpt.pages.follow", asked, stderr=subprocess.DEVNULL)
        except OSError as error:
            self._problem = error.strerror or str(error)

    def finish(self, *, left: float) -> Notice:
        """The run is complete: wait for its page while seconds are `left` and no signal comes. Returns what to tell."""
        deadline = time.monotonic() + left + LATE
        path, process = self._run.folder / REPORT, self._process
        if process is not None:
            assert process.stdin is not None and process.stdout is not None
            with contextlib.suppress(OSError):  # it was killed
                process.stdin.write("complete")
                process.stdin.close()
            with Interrupt("") as leaving:
                while process.poll() is None and time.monotonic() < deadline and not leaving.came_here:
                    time.sleep(LOOKS)
            if (code := process.returncode) is not None:
                self._problem = process.stdout.read() if code == 0 else f"its process ended with code {code}"
        if self._problem:
            return Notice(Kind.WARNING, f"{shown(path)}: not written ({self._problem}); the run is complete without it")
        return Notice(Kind.REPORT, shown(path))
