"""What a stranger's checkpoint writes cannot command a terminal. Into a file or pipe the text is exact.

This file tests sample.py and the printers on a real pseudo-terminal; the function itself is tested in tests/test_formatting.py.
"""

import contextlib
import json
import os
import re
from collections.abc import Mapping

import pytest
from helpers import publish_run
from programs import PIPE, Programs

from chargpt.text.tokenizer import Tokenizer

pty = pytest.importorskip("pty")

HOSTILE = "\x07\t\n\r\x1b ;]abc0152\x7f\x90\x9b\x9d\u202e\u2066"
OSC_52 = "\x1b]52;c;abc\x07"  # sets the clipboard


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    tokenizer = Tokenizer("".join(sorted(set(HOSTILE))))
    return str(publish_run(tmp_path_factory.mktemp("runs") / "theirs", tokenizer))


def on_a_terminal(
    programs: Programs, *argv: str, typed: str = "", environment: Mapping[str, str] = {**os.environ, "NO_COLOR": ""}
) -> str:
    """What sample.py writes to a terminal."""
    master, slave = pty.openpty()
    with programs.start("sample", *argv, stdin=PIPE, stdout=slave, stderr=slave, environment=environment) as writing:
        os.close(slave)
        writing.stdin.write(typed.encode())
        writing.stdin.close()
        written = b""
        with contextlib.suppress(OSError):  # Linux reports the end so
            while piece := os.read(master, 2**16):
                written += piece
        os.close(master)
        assert writing.wait() == 0, written
    return written.decode().replace("\r\n", "\n")  # the terminal's own line ends


@pytest.mark.parametrize("options", [[], ["--json"], ["--samples", "2"], ["--interactive"]], ids=" ".join)
def test_no_control_character_reaches_the_terminal(programs, run, options):
    typed = f"{OSC_52}\\n\n/\x1b]0;a\x07\n/new \x9b1\n" if options == ["--interactive"] else ""
    given = ["--prompt", OSC_52, "--length", "300", "--temperature", "2", "--seed", "1"]
    written = on_a_terminal(programs, run, *given, *options, typed=typed)
    if options == ["--interactive"]:
        written = re.sub(r"\x1b\[(0|35)m", "", written)  # our own colours
    assert not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", written)
    escapes = ["\\u001b", "\\u0007", "\\u202e"] if options == ["--json"] else ["\\x1b", "\\x07", "\\u202e"]
    assert all(escape in written for escape in escapes)
    if options == ["--json"]:
        assert json.loads(written.splitlines()[1])["prompt"] == OSC_52


def test_a_terminal_shows_the_words_of_the_model_in_another_colour(programs, tmp_path):
    run = str(publish_run(tmp_path / "run"))
    options = [run, "--interactive", "--length", "20", "--seed", "1", "--ban", "\n"]
    plain = programs.run("sample", *options, "--prompt", "ab").stdout.decode()
    assert plain.startswith("ab") and "\x1b" not in plain
    written = on_a_terminal(programs, *options, typed="ab\n")
    typed, _, answer = written.partition("ab\x1b[35m")
    assert "\x1b" not in typed and re.sub(r"\x1b\[(35|0)m", "", answer).startswith(plain.removeprefix("ab"))
    assert answer.rpartition("\x1b[0m")[2].strip("\n> ") == ""  # the user's words have their own colour again
    for variable in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in on_a_terminal(programs, *options, typed="ab\n", environment={**os.environ, **variable})
    assert "\x1b[35m" in on_a_terminal(programs, *options, typed="ab\n", environment={**os.environ, "NO_COLOR": ""})


def test_a_pipe_gets_the_exact_text(programs, run):
    assert programs.run("sample", run, "--prompt", OSC_52, "--length", "0").stdout == f"{OSC_52}\n".encode()
