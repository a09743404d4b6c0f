"""The command: a page of five verbs, a list of all, and one line for a wrong one."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from chargpt import terminal
from chargpt.__main__ import FIRST, main
from chargpt.commands.verbs import VERBS
from chargpt.project import command
from chargpt.terminal import UserError
from chargpt.version import version

ROOT = Path(__file__).parents[1]


def test_all_verbs_are_listed(capsys):
    assert main(["--help"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines() if line] == ["usage:", *VERBS]


def test_alone_it_shows_five_commands_as_they_are_typed(capsys, installed):
    assert main([]) == 0
    shown = re.findall(r"^ +chargpt ([a-z]+)", capsys.readouterr().out, re.MULTILINE)
    assert shown == [*FIRST] and len(shown) == 5 and set(shown) <= set(VERBS)


@pytest.mark.parametrize("width", [50, 80])
def test_the_list_of_verbs_fits_the_terminal(monkeypatch, capsys, width):
    monkeypatch.setattr(terminal, "terminal_width", lambda stream: width)
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 2 + len(VERBS) and max(map(len, lines)) <= width


def test_the_version_is_printed(capsys):
    assert main(["--version"]) == 0 and capsys.readouterr().out == f"chargpt {version()}\n"


def test_a_mistyped_verb_is_answered_with_the_nearest_one():
    with pytest.raises(UserError, match="^trian: no such verb; did you mean train"):
        main(["trian"])


def test_a_wrong_verb_is_one_line():
    with pytest.raises(UserError, match="no such verb; use one of"):
        main(["doctor"])
    done = subprocess.run([sys.executable, "-m", "chargpt", "doctor"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("error: doctor: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb, capsys):
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0 and command(verb) in capsys.readouterr().out
