"""The verb prints tables or JSON, and says what a longer context would bring."""

import json

import pytest

from chargpt.analysis.characters import CLASSES
from chargpt.analysis.losses import LastDoubling, LossBreakdown
from chargpt.commands.losses import advice, main


def test_tables_and_json(run, tmp_path, capsys):
    assert main([str(run), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert sum(row["share_of_loss"] for row in report["classes"]) == pytest.approx(1)
    assert all(row["class"] in CLASSES for row in report["classes"]) and report["last_doubling"]["gain"] is not None
    assert main([str(run), "--chars", "500", "--pairs", "3"]) == 0
    printed = capsys.readouterr()
    assert "first of a word" in printed.out and "longer context?" in printed.out
    assert "characters 1 to 501 of the " in printed.err


@pytest.mark.parametrize(
    "gain, error, words",
    [
        (None, None, "not known"),
        (0.01, 0.02, "chance"),
        (-0.01, 0.02, "0.010 ± 0.020 higher"),
        (0.004, 0.001, "help little"),
        (0.1, 0.01, "probably help"),
    ],
)
def test_advice_weighs_the_gain_against_chance(gain, error, words):
    doubling = LastDoubling(gain=gain, error=error)
    report = LossBreakdown(loss=1.5, classes=[], positions=[], last_doubling=doubling, confused=[])
    assert words in advice(report)
