"""Signals while sample.py runs: the first ends the text, the second ends the program, and none is lost.

This file has no module of its own: it tests sample.py, chargpt/interrupt.py and the loop of print_samples together.
"""

import functools
import os
import random
import signal
import time
from collections.abc import Callable

import pytest
from helpers import publish_run
from programs import Program

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX signals and fork")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    return str(publish_run(tmp_path_factory.mktemp("runs") / "tiny"))


@pytest.fixture
def start(programs, run) -> Callable[..., Program]:
    return functools.partial(programs.start, "sample", run, "--length", "100000000", "--overflow", "refill")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_the_text_with_its_line_and_says_so(start, name):
    number = getattr(signal, name)
    with start() as writing:
        assert writing.stdout.read(1)  # the text comes as it is made
        writing.send_signal(number)
        out, err = writing.communicate(timeout=30)
    assert writing.returncode == 128 + number
    assert out.endswith(b"\n") and err.endswith(b"\nstopped\n") and b"Traceback" not in err


def test_a_second_signal_ends_a_program_that_cannot_write(start):
    with start("--prompt", "a" * 100_000) as writing:
        assert writing.stdout.read(1)
        time.sleep(0.2)  # the prompt does not fit into the pipe and nobody reads on, so the program waits
        writing.send_signal(signal.SIGINT)
        time.sleep(0.2)
        assert writing.poll() is None
        writing.send_signal(signal.SIGINT)
        assert writing.wait(timeout=10) == 130


@pytest.mark.parametrize("times", [10, pytest.param(500, marks=pytest.mark.nightly)])
def test_no_press_of_ctrl_c_is_lost(start, times):
    moments = random.Random(times)
    for _ in range(times):
        with start("--seed", "1") as writing:
            assert writing.stderr.read(1)
            time.sleep(moments.uniform(0, 0.05))
            writing.send_signal(signal.SIGINT)
            _, said = writing.communicate(timeout=30)
        assert writing.returncode == 130 and said.endswith(b"stopped\n") and b"Traceback" not in said, said
