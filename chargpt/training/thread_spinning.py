"""How OpenMP's threads wait for each other: spinning while the machine is idle, asleep while it is busy.

A thread that spins reacts at once. On a busy machine it takes the processor from the thread that it waits for, and a step takes
2 to 30 times as long. libgomp, which torch uses on Linux, spins 300,000 times, but only 100 times while the process has more
OpenMP threads than there are processors (its manual, GOMP_SPINCOUNT). So a second team of threads, which gets no work, switches
the spinning off while it exists. LLVM's and Intel's OpenMP spin for 200 ms, and have a function that changes this. Results do
not change.
"""

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from chargpt.training.runtime import Runtime

CHECK_SECONDS = 1.0  # between two looks at the machine
BUSY_SHARE = 0.8  # spinning threads use all of their processors' time, unless other programs take some
IDLE_LOAD = 0.2  # processors that other programs may use on a machine that counts as idle
MAX_TEAMS = 8
LOOKS_AT_START = 5
CHOSEN_BY_USER = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME", "KMP_LIBRARY")  # variables: nothing is chosen here
PARALLEL_GRAIN = 2**15  # torch divides a sum of this many numbers or less among no threads


class ThreadSpinning:
    """While active, switches the spinning on and off by what other programs use of the processors. On Linux; else, nothing."""

    def __init__(self, runtime: Runtime, *, environment: Mapping[str, str] = os.environ, system: Path = Path("/proc")) -> None:
        """On a GPU, with one thread, or with a choice of the user in `environment`, nothing is ever switched."""
        self._threads, self._system, self._llvm = runtime.threads, system, llvm_openmp()
        self._teams_needed = _teams_needed(runtime.threads)
        has_choice = runtime.device.type == "cpu" and not any(name in environment for name in CHOSEN_BY_USER)
        can_switch = runtime.threads > 1 if self._llvm else 1 <= self._teams_needed <= MAX_TEAMS
        self._is_fixed = not (has_choice and can_switch and (system / "stat").is_file())
        self._wall = self._processor = 0.0  # seconds in steps since the last look, while spinning
        self._looked = (0.0, 0.0, 0.0)  # the time of the last look while asleep, and the two seconds of _processor_seconds then
        self._end = threading.Event()  # of the idle teams
        self._idle_teams: list[threading.Thread] = []
        self._spin_milliseconds: int | None = None  # of LLVM's OpenMP, while it is switched off

    @property
    def is_asleep(self) -> bool:
        """Whether threads sleep while they wait."""
        return bool(self._idle_teams) or self._spin_milliseconds is not None

    def __enter__(self) -> "ThreadSpinning":
        if not (self._is_fixed or self._llvm) and _others_are_running(self._system):  # the threads of LLVM still spin
            self._sleep()
        return self

    def __exit__(self, *_: object) -> None:
        self._spin()

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Measure the step in this block, and switch after it if the machine has become busy, or idle."""
        if self._is_fixed:
            yield
            return
        wall, processor = time.perf_counter(), time.process_time()
        yield
        if self.is_asleep:
            self._look_at_machine()
        else:
            self.add(time.perf_counter() - wall, time.process_time() - processor)

    def add(self, wall: float, processor: float) -> None:
        """A step took `wall` seconds with spinning threads, which together used `processor` seconds of the processors."""
        self._wall += wall
        self._processor += processor
        if self._wall >= CHECK_SECONDS:
            if self._processor < BUSY_SHARE * self._threads * self._wall:
                self._sleep()
            self._wall = self._processor = 0.0

    def _look_at_machine(self) -> None:
        """Spin again if other programs have left the processors to this one since the last look."""
        seconds = time.perf_counter() - self._looked[0]
        if seconds >= CHECK_SECONDS:
            used, own, processors = _processor_seconds(self._system)
            others = (used - self._looked[1] - (own - self._looked[2])) / seconds
            self._looked = (time.perf_counter(), used, own)
            if others < processors - self._threads + IDLE_LOAD:
                self._spin()

    def _spin(self) -> None:
        if self._llvm and self._spin_milliseconds is not None:
            self._llvm.kmp_set_blocktime(self._spin_milliseconds)
            self._spin_milliseconds = None
        self._end.set()
        while self._idle_teams:
            self._idle_teams.pop().join()

    def _sleep(self) -> None:
        self._end.clear()
        used, own, _ = _processor_seconds(self._system)
        self._looked = (time.perf_counter(), used, own)
        if self._llvm:
            self._spin_milliseconds = self._llvm.kmp_get_blocktime()
            self._llvm.kmp_set_blocktime(0)
            return
        for _ in range(self._teams_needed):
            team = threading.Thread(target=_idle_team, args=(self._threads, self._end))
            try:
                team.start()
            except RuntimeError:  # the system allows no more threads: the training goes on as it is
                return
            self._idle_teams.append(team)


def llvm_openmp() -> ctypes.CDLL | None:
    """The OpenMP library of this process if it is LLVM's or Intel's; None if it is another, such as libgomp."""
    process = ctypes.CDLL(None) if os.name == "posix" else None
    return process if hasattr(process, "kmp_set_blocktime") else None


def _teams_needed(threads: int) -> int:
    """How many teams give the process more OpenMP threads than it has processors; 0 if no number does."""
    if threads < 2:
        return 0
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, -(-(processors + 1 - threads) // (threads - 1)))


def _others_are_running(system: Path) -> bool:
    """Whether threads besides this one are running or waiting for a processor, at each of a few moments."""
    counts = []
    for _ in range(LOOKS_AT_START):
        time.sleep(0.002)  # threads of this process that still spin after an operation stop
        counts.append(int((system / "loadavg").read_text().split()[3].split("/")[0]))
    return min(counts) > 1


def _processor_seconds(system: Path) -> tuple[float, float, int]:
    """The seconds that processors have worked since the machine started, those for this process, the number of processors."""
    lines = (system / "stat").read_text().splitlines()
    user, nice, kernel, _, _, interrupts, soft_interrupts, stolen = map(int, lines[0].split()[1:9])
    used = user + nice + kernel + interrupts + soft_interrupts + stolen
    processors = sum(line.startswith("cpu") for line in lines) - 1
    return used / os.sysconf("SC_CLK_TCK"), time.process_time(), processors


def _idle_team(threads: int, end: threading.Event) -> None:
    """A thread with an OpenMP team of its own: each thread that computes in parallel starts one, and has it until it ends."""
    torch.zeros(threads * PARALLEL_GRAIN + 1).add_(1)
    end.wait()
