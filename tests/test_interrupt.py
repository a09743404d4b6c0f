"""The first signal is remembered, the second ends the process, and handlers are put back."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chargpt.interrupt import Interrupt

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_is_remembered(number, code):
    before = signal.getsignal(number)
    with Interrupt() as interrupt:
        assert not interrupt() and interrupt.exit_code == 0
        os.kill(os.getpid(), number)
        assert interrupt() and interrupt.exit_code == code
    assert signal.getsignal(number) is before


def test_the_second_signal_ends_the_process():
    code = (
        "import os, signal, time\nfrom chargpt.interrupt import Interrupt\n"
        "with Interrupt():\n    for _ in range(2): os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(9)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=8)
    assert done.returncode == 130 and b"stopping" in done.stderr
