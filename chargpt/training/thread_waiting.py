"""How OpenMP's threads wait for each other: spinning while the machine is idle, asleep while it is busy.

A thread that spins reacts at once. On a busy machine it takes the processor from the thread that it waits for, and a step takes
2 to 30 times as long. libgomp, which torch uses on Linux, spins 300,000 times, but only 100 times while the process has more
OpenMP threads than there are processors (its manual, GOMP_SPINCOUNT); LLVM's library yields the processor then. So a second
team of threads, which gets no work, switches the spinning off while it exists. Results do not change.
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping

import torch

from chargpt.training.runtime import Runtime

CHECK_SECONDS = 1.0  # of steps between two looks at the share
BUSY_SHARE = 0.8  # spinning threads use all of their processors' time, unless other programs take some
RETRY_SECONDS = (10.0, 160.0)  # how long to stay asleep before spinning is tried again: at first, and at most
CHOSEN_BY_USER = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")  # variables that leave nothing to choose here
PARALLEL_GRAIN = 2**15  # torch divides a sum of this many numbers or less among no threads


class ThreadWaiting:
    """Watches what share of the processors the steps of a training get, and switches the spinning on and off."""

    def __init__(self, runtime: Runtime, *, environment: Mapping[str, str] = os.environ) -> None:
        """On a GPU, with one thread, or with a choice of the user in `environment`, nothing is ever switched."""
        self._threads = runtime.threads
        self._is_fixed = (
            runtime.device.type != "cpu" or runtime.threads < 2 or any(name in environment for name in CHOSEN_BY_USER)
        )
        self._wall = self._processor = 0.0  # seconds in steps since the last look
        self._retry = RETRY_SECONDS[0]
        self._end = threading.Event()  # of the idle teams
        self._idle_teams: list[threading.Thread] = []

    @property
    def is_asleep(self) -> bool:
        """Whether threads sleep while they wait."""
        return bool(self._idle_teams)

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Measure the step in this block, and switch after it if the machine has become busy or may be idle again."""
        if self._is_fixed:
            yield
            return
        wall, processor = time.perf_counter(), time.process_time()
        yield
        self.add(time.perf_counter() - wall, time.process_time() - processor)

    def add(self, wall: float, processor: float) -> None:
        """A step took `wall` seconds, in which all threads together used `processor` seconds of the processors."""
        self._wall += wall
        self._processor += processor
        if self._wall < (self._retry if self.is_asleep else CHECK_SECONDS):
            return
        if self.is_asleep:
            self._retry = min(2 * self._retry, RETRY_SECONDS[1])
            self._spin()
        elif self._processor < BUSY_SHARE * self._threads * self._wall:
            self._sleep()
        else:
            self._retry = RETRY_SECONDS[0]
        self._wall = self._processor = 0.0

    def __enter__(self) -> "ThreadWaiting":
        return self

    def __exit__(self, *_: object) -> None:
        self._spin()

    def _spin(self) -> None:
        self._end.set()
        while self._idle_teams:
            self._idle_teams.pop().join()

    def _sleep(self) -> None:
        """Start as many idle teams as give the process more OpenMP threads than there are processors."""
        self._end.clear()
        missing = (os.cpu_count() or 1) + 1 - self._threads
        for _ in range(max(1, -(-missing // (self._threads - 1)))):
            self._idle_teams.append(threading.Thread(target=_idle_team, args=(self._threads, self._end)))
            self._idle_teams[-1].start()


def _idle_team(threads: int, end: threading.Event) -> None:
    """A thread with an OpenMP team of its own: each thread that computes in parallel starts one, and has it until it ends."""
    torch.zeros(threads * PARALLEL_GRAIN + 1).add_(1)
    end.wait()
