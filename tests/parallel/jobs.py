"""Jobs of several processes, for the tests: begun, watched, killed, and their output read."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from programs import Program


@dataclass
class Ended:
    """How the processes of a job ended, by rank."""

    codes: list[int]
    out: list[str]
    err: list[str]
    weights: list[str]  # the steps that were saved, and the hash of the weights that each process had then
    has_saved: bool  # as torchrun knows it when it starts the processes again

    @property
    def errors(self) -> list[str]:
        """The lines that begin with `error:`, of all processes."""
        return [line for text in self.err for line in text.splitlines() if line.startswith("error:")]


class JobServer:
    """Runs jobs one after the other."""

    def __init__(self, folder: Path, server: Program) -> None:
        """`server` is the program of job_server.py."""
        self.folder, self._server = folder, server

    def run(
        self,
        size: int,
        *arguments: str,
        when: Callable[[], bool] | None = None,
        victim: int = 0,
        number: int = signal.SIGKILL,
        restarts: int = 0,
        saved: bool = False,
        machines: int = 1,
        stdin: str = os.devnull,
        limit_files: int = 0,
    ) -> Ended:
        """Run a job to its end. Once `when` says so, the process of rank `victim` gets the signal `number`.

        `restarts` and `saved` say how often torchrun has started the processes before, and whether they had saved. They believe
        to be on so many `machines`.
        The first process cannot write files of more than `limit_files` bytes, if that is given.
        """
        output, started = self.folder / "output", time.monotonic()
        job = {"size": size, "arguments": arguments, "output": str(output), "restarts": restarts, "saved": saved}
        job |= {"stdin": stdin, "limit_files": limit_files, "machines": machines}
        for earlier in self.folder.glob("output-*"):  # so that `when` reads nothing of an earlier job
            earlier.unlink()
        self._server.stdin.write(json.dumps(job) + "\n")
        self._server.stdin.flush()
        children = json.loads(self._server.stdout.readline())
        if when is not None:
            while not when() and time.monotonic() - started < 120:
                time.sleep(0.001)
            with contextlib.suppress(ProcessLookupError):
                os.kill(children[victim], number)
        codes, has_saved = json.loads(self._server.stdout.readline())
        out, err = ([Path(f"{output}-{rank}.{stream}").read_text() for rank in range(size)] for stream in (1, 2))
        assert -signal.SIGALRM not in codes, f"a process hangs: {codes} {err}"
        weights = [path.read_text() if (path := Path(f"{output}-{rank}.weights")).exists() else "" for rank in range(size)]
        return Ended(codes, out, err, weights, has_saved)
