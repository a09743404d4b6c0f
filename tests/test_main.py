"""The command: a page of five verbs, a list of all, and one line for a wrong one."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from chargpt.__main__ import FIRST, main
from chargpt.commands.verbs import ALIASES, VERBS
from chargpt.errors import UserError

ROOT = Path(__file__).parents[1]


def test_all_verbs_are_listed(capsys):
    assert main(["--help"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines() if line] == ["usage:", *VERBS]


def test_alone_it_shows_five_commands_as_they_are_typed(capsys, installed):
    assert main([]) == 0
    shown = re.findall(r"^ +chargpt ([a-z]+)", capsys.readouterr().out, re.MULTILINE)
    assert shown == [*FIRST] and len(shown) == 5 and set(shown) <= set(VERBS)


def test_every_alias_of_a_verb_leads_to_one():
    for word, verb in ALIASES.items():
        assert word not in VERBS and (verb.split()[0] in VERBS or verb in ("--version", "--help"))
    with pytest.raises(UserError, match=r"^delete: no such command; did you mean remove\?$"):
        main(["delete"])


def test_a_wrong_verb_is_one_line():
    with pytest.raises(UserError, match="no such command; use one of"):
        main(["doctor"])
    done = subprocess.run([sys.executable, "-m", "chargpt", "doctor"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("error: doctor: ") and done.stderr.count("\n") == 1
