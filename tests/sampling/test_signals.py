"""Signals while sample.py runs: the first ends the text, the second ends the program, and none is lost.

This file has no module of its own: it tests sample.py, chargpt/interrupt.py and the loop of print_samples together.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from helpers import publish_run

import sample
from chargpt.terminal import run_program

ROOT = Path(sample.__file__).parent

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX signals and fork")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    return str(publish_run(tmp_path_factory.mktemp("runs") / "tiny"))


def start(run: str, *options: str) -> subprocess.Popen:
    command = [sys.executable, str(ROOT / "sample.py"), run, "--length", "100000000", "--overflow", "refill", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_the_text_with_its_line_and_says_so(run, name):
    number = getattr(signal, name)
    with start(run) as writing:
        assert writing.stdout.read(1)  # the text comes as it is made
        writing.send_signal(number)
        out, err = writing.communicate(timeout=30)
    assert writing.returncode == 128 + number
    assert out.endswith(b"\n") and err.endswith(b"\nstopped\n") and b"Traceback" not in err


def test_several_samples_are_printed_as_far_as_they_are_made(run):
    with start(run, "--samples", "3", "--json") as writing:
        time.sleep(0.1)
        while not Path(f"/proc/{writing.pid}").exists() or b"seed" not in os.read(writing.stderr.fileno(), 1000):
            pass
        time.sleep(0.2)
        writing.send_signal(signal.SIGINT)
        out, _ = writing.communicate(timeout=30)
    assert writing.returncode == 130 and out.count(b'"text"') == 3 and out.count(b"\n") == 3


def test_a_second_signal_ends_a_program_that_cannot_write(run):
    with start(run, "--prompt", "a" * 100_000) as writing:
        assert os.read(writing.stdout.fileno(), 1)
        time.sleep(0.2)  # the prompt does not fit into the pipe and nobody reads on, so the program waits
        writing.send_signal(signal.SIGINT)
        time.sleep(0.2)
        assert writing.poll() is None
        writing.send_signal(signal.SIGINT)
        assert writing.wait(timeout=10) == 130


@pytest.mark.parametrize("delay", [0.3, 0.7, 1.2, 2.0])
def test_a_signal_before_the_text_ends_the_program_at_once(run, delay):
    with start(run) as writing:
        time.sleep(delay)
        writing.send_signal(signal.SIGINT)
        _, err = writing.communicate(timeout=30)
    assert writing.returncode == 130 and b"Traceback" not in err


def press(run: str, delay: float) -> tuple[int, bytes]:
    """Write in a fork of this process, which has imported everything, and interrupt it after `delay` seconds of writing."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(write, 1)
        os.dup2(write, 2)
        sys.stdout, sys.stderr = open(1, "w"), open(2, "w")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        options = [run, "--length", "100000000", "--overflow", "refill", "--seed", "1"]
        code = 99
        try:
            code = run_program(lambda: sample.main(options))
        finally:
            os._exit(code)
    os.close(write)
    said = os.read(read, 1)
    time.sleep(delay)
    os.kill(child, signal.SIGINT)
    deadline = time.monotonic() + 30
    while piece := os.read(read, 2**16):
        said = (said + piece)[-1000:]
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
    os.close(read)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


@pytest.mark.parametrize("times", [40, pytest.param(500, marks=pytest.mark.nightly)])
def test_no_press_of_ctrl_c_is_lost(run, times):
    torch.set_num_threads(1)
    moments = random.Random(times)
    for _ in range(times):
        code, said = press(run, moments.uniform(0, 0.05))
        assert code == 130 and said.endswith(b"stopped\n") and b"Traceback" not in said, said
