"""Verbs that look into a run take it first, and a device."""

import pytest

from chargpt.insight.options import add_run_options, say
from chargpt.terminal import Parser, UserError


def test_the_run_is_required_and_the_device_is_not(capsys):
    parser = Parser(prog="verb")
    add_run_options(parser)
    assert vars(parser.parse_args(["poems"])) == {"run": "poems", "device": "auto"}
    with pytest.raises(UserError, match="RUN"):
        parser.parse_args([])


def test_notices_go_to_standard_error(capsys):
    say("done")
    assert capsys.readouterr() == ("", "done\n")
