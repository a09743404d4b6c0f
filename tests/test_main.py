"""`python -m chargpt`: the verbs, each with a line, and one line for a wrong one."""

import subprocess
import sys
from pathlib import Path

import pytest

from chargpt import terminal
from chargpt.__main__ import main
from chargpt.commands.verbs import VERBS
from chargpt.terminal import UserError

ROOT = Path(__file__).parents[1]


def test_without_a_verb_all_are_listed(capsys):
    assert main([]) == main(["--help"]) == 0
    listed = capsys.readouterr().out
    first = [line.split()[0] for line in listed.splitlines() if line]
    assert first == 2 * ["usage:", *VERBS]


@pytest.mark.parametrize("width", [50, 80])
def test_the_list_of_verbs_fits_the_terminal(monkeypatch, capsys, width):
    monkeypatch.setattr(terminal, "terminal_width", lambda stream: width)
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 2 + len(VERBS) and max(map(len, lines)) <= width


def test_a_wrong_verb_is_one_line():
    with pytest.raises(UserError, match="no such verb; use one of"):
        main(["doctor"])
    done = subprocess.run([sys.executable, "-m", "chargpt", "doctor"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("error: doctor: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb, capsys):
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0 and f"python -m chargpt {verb}" in capsys.readouterr().out
