"""Threads sleep while they wait on a busy machine, spin on an idle one, and nothing of this changes a result."""

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from chargpt.training.runtime import Runtime
from chargpt.training.thread_waiting import CHECK_SECONDS, RETRY_SECONDS, ThreadWaiting

ROOT = Path(__file__).parents[2]


def runtime(device: str = "cpu", threads: int = 2) -> Runtime:
    return Runtime(device=torch.device(device), precision=torch.float32, threads=threads)


@pytest.fixture
def waiting():
    with ThreadWaiting(runtime(), environment={}) as waiting:
        yield waiting


def test_threads_that_get_their_processors_spin(waiting):
    for _ in range(50):
        waiting.add(CHECK_SECONDS / 4, 2 * 0.95 * CHECK_SECONDS / 4)
    assert not waiting.is_asleep


def test_threads_that_others_push_aside_sleep(waiting):
    waiting.add(CHECK_SECONDS, 2 * 0.6 * CHECK_SECONDS)
    assert waiting.is_asleep


def test_one_slow_step_in_a_second_of_fast_ones_changes_nothing(waiting):
    waiting.add(0.1 * CHECK_SECONDS, 0.0)
    waiting.add(0.9 * CHECK_SECONDS, 2 * 0.9 * CHECK_SECONDS)
    assert not waiting.is_asleep


def test_spinning_is_tried_again_and_less_often_while_the_machine_stays_busy(waiting):
    waits, asleep = [], 0.0
    for _ in range(2000):
        waiting.add(1.0, 0.9)  # less than half of two processors
        if waiting.is_asleep:
            asleep += 1.0
        elif asleep:
            waits.append(asleep)
            asleep = 0.0
    assert waits[0] == pytest.approx(RETRY_SECONDS[0], abs=1)
    assert waits == sorted(waits) and waits[-1] == pytest.approx(RETRY_SECONDS[1], abs=1)


def test_an_idle_machine_after_a_busy_one_has_spinning_threads_again(waiting):
    waiting.add(CHECK_SECONDS, 0.5)
    waiting.add(RETRY_SECONDS[0], 10.0)
    for _ in range(10):
        waiting.add(CHECK_SECONDS, 2 * CHECK_SECONDS)
        assert not waiting.is_asleep


@pytest.mark.parametrize("name", ["GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME"])
def test_what_the_user_has_set_stays(name):
    waiting = ThreadWaiting(runtime(), environment={name: "1"})
    with waiting.watch():
        time.sleep(CHECK_SECONDS + 0.05)
    assert not waiting.is_asleep


@pytest.mark.parametrize("machine", [runtime(threads=1), runtime(device="cuda")], ids=["one thread", "GPU"])
def test_one_thread_and_a_gpu_have_nothing_to_wait_for(machine):
    waiting = ThreadWaiting(machine, environment={})
    with waiting.watch():
        time.sleep(CHECK_SECONDS + 0.05)
    assert not waiting.is_asleep


def test_the_program_ends_when_a_step_fails_while_threads_sleep():
    fail = """
import torch
from chargpt.training.runtime import Runtime
from chargpt.training.thread_waiting import ThreadWaiting
with ThreadWaiting(Runtime(device=torch.device("cpu"), precision=torch.float32, threads=2), environment={}) as waiting:
    waiting.add(2.0, 0.0)
    raise SystemExit(7)
"""
    assert subprocess.run([sys.executable, "-c", fail], cwd=ROOT, capture_output=True, timeout=60).returncode == 7


def test_a_step_that_uses_no_processor_counts_as_pushed_aside(waiting):
    with waiting.watch():
        time.sleep(CHECK_SECONDS + 0.05)
    assert waiting.is_asleep


def test_products_are_equal_to_the_bit_and_no_thread_is_left():
    torch.manual_seed(0)
    a, b = torch.randn(2, 300, 300)
    before, threads = a @ b, threading.active_count()
    with ThreadWaiting(runtime(), environment={}) as waiting:
        waiting.add(CHECK_SECONDS, 0.0)
        assert waiting.is_asleep and torch.equal(a @ b, before)
    assert threading.active_count() == threads


@pytest.mark.skipif(sys.platform != "linux", reason="counts the threads of a process in /proc")
def test_asleep_a_process_has_more_threads_than_there_are_processors():
    """What libgomp looks at. In a process of its own, since a test may have set the number of threads already."""
    count = """
import os, time, torch
from chargpt.training.runtime import Runtime
from chargpt.training.thread_waiting import ThreadWaiting
torch.set_num_threads(2)
waiting = ThreadWaiting(Runtime(device=torch.device("cpu"), precision=torch.float32, threads=2), environment={})
torch.zeros(2**20).add_(1)
def threads():
    return len(os.listdir("/proc/self/task"))
before, end = threads(), time.monotonic() + 20
waiting.add(2.0, 0.0)
while threads() <= max(before + 1, os.cpu_count()) and time.monotonic() < end:
    time.sleep(0.01)
print(threads() - before, threads() > os.cpu_count())
waiting.__exit__()
"""
    result = subprocess.run([sys.executable, "-c", count], cwd=ROOT, capture_output=True, text=True)
    started, more = result.stdout.split()
    assert int(started) >= 2 and more == "True", result.stderr
