"""Threads sleep while they wait on a busy machine, spin on an idle one, and nothing of this changes a result."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from helpers import SHORT_RUN, Clock, after_each_piece

import train
from chargpt.training import thread_spinning
from chargpt.training.runtime import Runtime
from chargpt.training.thread_spinning import CHOSEN_BY_USER, ThreadSpinning

ROOT = Path(__file__).parents[2]
CHECK_SECONDS = 0.25  # here, instead of a second
THREADS = max(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def runtime(device: str = "cpu", threads: int = THREADS) -> Runtime:
    return Runtime(device=torch.device(device), precision=torch.float32, threads=threads)


@pytest.fixture(autouse=True)
def short_checks(monkeypatch):
    monkeypatch.setattr(thread_spinning, "CHECK_SECONDS", CHECK_SECONDS)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """In it, threads are as busy as a test says."""
    clock = Clock()
    monkeypatch.setattr(thread_spinning, "time", clock)
    return clock


class Machine:
    """What /proc says of a machine with as many processors as this process may use, in a folder of its own."""

    def __init__(self, folder: Path, *, processors: int) -> None:
        self.folder, self.processors, self.used = folder, processors, 0.0
        self.show(running=1)

    def show(self, *, running: int, used: float = 0.0) -> None:
        """So many threads run, and the processors have worked `used` more seconds."""
        self.used += used
        hundredths = int(self.used * os.sysconf("SC_CLK_TCK"))
        processors = "".join(f"cpu{number} 0 0 0 0 0 0 0 0 0 0\n" for number in range(self.processors))
        (self.folder / "stat").write_text(f"cpu  {hundredths} 0 0 5 5 0 0 0 0 0\n{processors}intr 1\n")
        (self.folder / "loadavg").write_text(f"0.50 0.40 0.30 {running}/99 1234\n")


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path, processors=THREADS)


@pytest.fixture
def spinning(machine):
    with ThreadSpinning(runtime(), environment={}, system=machine.folder) as spinning:
        yield spinning


def test_threads_that_get_their_processors_spin(spinning):
    for _ in range(50):
        spinning.add(CHECK_SECONDS / 4, THREADS * 0.95 * CHECK_SECONDS / 4)
    assert not spinning.is_asleep


def test_threads_that_others_push_aside_sleep(spinning):
    spinning.add(CHECK_SECONDS, THREADS * 0.6 * CHECK_SECONDS)
    assert spinning.is_asleep


def test_on_a_busy_machine_threads_sleep_from_the_start(machine):
    machine.show(running=3)
    with ThreadSpinning(runtime(), environment={}, system=machine.folder) as spinning:
        assert spinning.is_asleep
    assert not spinning.is_asleep


@pytest.mark.parametrize(
    "processors, others, asleep",
    [(THREADS, 1.0, True), (THREADS, 0.1, False), (THREADS + 8, 8.0, False), (THREADS + 8, 12.0, True)],
)
def test_threads_spin_again_when_others_leave_them_their_processors(tmp_path, clock, processors, others, asleep):
    machine = Machine(tmp_path, processors=processors)
    machine.show(running=3)
    with ThreadSpinning(runtime(), environment={}, system=machine.folder) as spinning:
        for _ in range(2):
            clock.sleep(CHECK_SECONDS)
            machine.show(running=1, used=others * CHECK_SECONDS)
            with spinning.watch():
                pass
            assert spinning.is_asleep == asleep
            if not asleep:
                break


@pytest.mark.parametrize(
    ("machine", "environment"),
    [
        (runtime(), {"GOMP_SPINCOUNT": "1"}),
        (runtime(), {"OMP_WAIT_POLICY": "1"}),
        (runtime(threads=1), {}),
        (runtime("cuda"), {}),
    ],
    ids=["chosen by the user", "another choice", "one thread", "GPU"],
)
def test_what_the_user_has_set_stays_and_one_thread_and_a_gpu_have_nothing_to_wait_for(machine, environment, clock):
    spinning = ThreadSpinning(machine, environment=environment)
    with spinning.watch():
        clock.sleep(CHECK_SECONDS)
    assert not spinning.is_asleep


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has what switches the spinning")
def test_the_program_ends_when_a_step_fails_while_threads_sleep():
    fail = f"""
import torch
from chargpt.training.runtime import Runtime
from chargpt.training.thread_spinning import ThreadSpinning
machine = Runtime(device=torch.device("cpu"), precision=torch.float32, threads={THREADS})
with ThreadSpinning(machine, environment={{}}) as spinning:
    spinning.add(2.0, 0.0)
    raise SystemExit(7)
"""
    assert subprocess.run([sys.executable, "-c", fail], cwd=ROOT, capture_output=True, timeout=60).returncode == 7


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has what switches the spinning")
def test_asleep_a_process_has_more_threads_than_there_are_processors(programs):
    """What libgomp looks at. In a process of its own, since a test may have set the number of threads already."""
    count = f"""
import os, time, torch
from chargpt.training.runtime import Runtime
from chargpt.training.thread_spinning import ThreadSpinning
torch.set_num_threads({THREADS})
spinning = ThreadSpinning(Runtime(device=torch.device("cpu"), precision=torch.float32, threads={THREADS}), environment={{}})
torch.zeros(2**20).add_(1)
def threads():
    return len(os.listdir("/proc/self/task"))
before, end = threads(), time.monotonic() + 20
spinning.add(2.0, 0.0)
while threads() <= max(before + 1, os.cpu_count()) and time.monotonic() < end:
    time.sleep(0.01)
print(threads() - before, threads() > os.cpu_count())
spinning.__exit__()
"""
    result = programs.run(code=count)
    started, more = result.stdout.split()
    assert int(started) >= 2 and more == b"True", result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has what switches the spinning")
def test_beside_other_programs_threads_sleep_until_the_last_sample_is_written(tmp_path, text, monkeypatch):
    """Spinning, the sample after the last step took two minutes beside two endless loops."""
    for name in CHOSEN_BY_USER:
        monkeypatch.delenv(name, raising=False)
    asleep = []
    after_each_piece(monkeypatch, lambda: asleep.append(any("_idle_team" in thread.name for thread in threading.enumerate())))
    threads = torch.get_num_threads()
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(THREADS)]
    try:
        time.sleep(0.5)  # until they run
        settings = [*SHORT_RUN, f"runtime.threads={THREADS}", f"data.cache={tmp_path}/cache", "--run", f"{tmp_path}/run"]
        assert train.main([str(text), *settings, "train.max_steps=4"]) == 0
    finally:
        torch.set_num_threads(threads)
        for loop in loops:
            loop.kill()
            loop.wait()
    assert len(asleep) >= 2 and all(asleep)  # of both evaluations
