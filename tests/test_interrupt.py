"""A signal sets a flag, or ends the program at once; nohup is respected; handlers come back."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chargpt.interrupt import SIGNALS, Interrupt, ending_at_once

ROOT = Path(__file__).parent.parent

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs POSIX signals"),
    pytest.mark.usefixtures("default_signals"),
]


@pytest.mark.parametrize(
    ("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129), ("SIGUSR1", 138), ("SIGXCPU", 152)]
)
def test_the_first_signal_sets_the_flag_and_its_exit_code(capfd, name, code):
    with Interrupt(notice="stopping\n") as interrupt:
        assert not interrupt.agreed and not interrupt.came_here and interrupt.exit_code == 0
        os.kill(os.getpid(), getattr(signal, name))
        assert interrupt.agreed and interrupt.came_here and interrupt.exit_code == code
    assert capfd.readouterr().err == "stopping\n"


def test_handlers_come_back():
    before = [signal.getsignal(number) for number in SIGNALS]
    with Interrupt(), ending_at_once():
        assert all(signal.getsignal(number) not in before for number in SIGNALS)
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_within_an_interrupt_a_time_that_ends_at_once_gives_the_flag_back():
    with Interrupt(notice="") as interrupt:
        with ending_at_once():
            pass
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.came_here


def ended(code: str) -> subprocess.CompletedProcess:
    head = "import os, signal\nfrom chargpt.interrupt import Interrupt, ending_at_once\n"
    return subprocess.run([sys.executable, "-c", head + code], cwd=ROOT, capture_output=True, timeout=30)


def test_the_second_signal_ends_the_program_at_once():
    twice = "os.kill(os.getpid(), signal.SIGINT)\n" * 2
    done = ended(f"with Interrupt():\n    {twice.strip().replace(chr(10), chr(10) + '    ')}\n    print('here')")
    assert done.returncode == 130 and not done.stdout and b"Ctrl-C again stops without saving" in done.stderr


def test_before_there_is_anything_to_finish_the_first_one_does():
    done = ended("with ending_at_once():\n    os.kill(os.getpid(), signal.SIGINT)\nprint('here')")
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"stopped\n")


def test_a_lost_terminal_that_nohup_ignores_stays_ignored():
    done = ended(
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "with Interrupt() as interrupt:\n    os.kill(os.getpid(), signal.SIGHUP)\n    print(interrupt.came_here)"
    )
    assert done.stdout == b"False\n"


def test_ctrl_c_is_noticed_though_a_shells_background_job_begins_with_it_ignored():
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    kill = "    os.kill(os.getpid(), signal.SIGINT)\n"
    flag = ended(ignored + f"with Interrupt() as interrupt:\n{kill}    print(interrupt.came_here, interrupt.exit_code)")
    assert flag.stdout == b"True 130\n"
    at_once = ended(ignored + f"with ending_at_once():\n{kill}print('here')")
    assert (at_once.returncode, at_once.stdout, at_once.stderr) == (130, b"", b"stopped\n")
