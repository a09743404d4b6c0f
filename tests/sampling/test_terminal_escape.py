"""What a stranger's checkpoint writes cannot command a terminal. Into a file or pipe the text is exact.

This file tests sample.py and the printers on a real pseudo-terminal; the function itself is tested in tests/test_terminal.py.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import publish_run

import sample
from chargpt.text.tokenizer import Tokenizer

pty = pytest.importorskip("pty")

ROOT = Path(sample.__file__).parent
HOSTILE = "\x07\t\n\r\x1b ;]abc0152\x7f\x90\x9b\x9d\u202e\u2066"
OSC_52 = "\x1b]52;c;abc\x07"  # sets the clipboard


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    tokenizer = Tokenizer("".join(sorted(set(HOSTILE))))
    return str(publish_run(tmp_path_factory.mktemp("runs") / "theirs", tokenizer))


def on_a_terminal(*argv: str, typed: str = "") -> str:
    """What sample.py writes to a terminal."""
    master, slave = pty.openpty()
    command = [sys.executable, str(ROOT / "sample.py"), *argv]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=slave, stderr=slave)
    os.close(slave)
    process.stdin.write(typed.encode())
    process.stdin.close()
    written = b""
    while True:
        try:
            piece = os.read(master, 2**16)
        except OSError:  # Linux reports the end so
            break
        if not piece:
            break
        written += piece
    os.close(master)
    assert process.wait(timeout=60) == 0, written
    return written.decode().replace("\r\n", "\n")  # the terminal's own line ends


@pytest.mark.parametrize("options", [[], ["--surprise"], ["--json"], ["--samples", "2"], ["--interactive"]], ids=" ".join)
def test_no_control_character_reaches_the_terminal(run, options):
    typed = f"{OSC_52}\\n\n/\x1b]0;a\x07\n/new \x9b1\n" if options == ["--interactive"] else ""
    written = on_a_terminal(
        run, "--prompt", OSC_52, "--length", "300", "--temperature", "2", "--seed", "1", *options, typed=typed
    )
    if options == ["--surprise"]:
        written = re.sub(r"\x1b\[(0|2|33|31)m", "", written)  # our own colours
    assert not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", written)
    escapes = ["\\u001b", "\\u0007", "\\u202e"] if options == ["--json"] else ["\\x1b", "\\x07", "\\u202e"]
    assert all(escape in written for escape in escapes)
    if options == ["--json"]:
        assert json.loads(written.splitlines()[1])["prompt"] == OSC_52


def test_a_pipe_gets_the_exact_text(run):
    command = [sys.executable, str(ROOT / "sample.py"), run, "--prompt", OSC_52, "--length", "0"]
    assert subprocess.run(command, capture_output=True, timeout=60).stdout == f"{OSC_52}\n".encode()
