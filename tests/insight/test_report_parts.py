"""The parts of a report show the numbers that they are given."""

import numpy as np
import pytest

from chargpt.config import Config
from chargpt.insight.metrics_log import MetricsLog
from chargpt.insight.report_data import RunReport
from chargpt.insight.report_parts import coloured, cut, duration, setting, verdict
from chargpt.insight.scored_text import Line


def test_the_colour_of_a_character_is_its_surprise():
    line = Line(1, "ab<c\n", np.array([np.nan, 0.1, 20.0, 1.5, 0.0]))
    assert coloured(line, 100) == 'ab<span class="heat-9">&lt;</span><span class="heat-2">c</span>\n'
    assert coloured(line, 2) == "ab …"


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"mark": 1.4}, ["1.50 nats (2.16 bits)", "0.10 above that of an n-gram model"]),
        ({"mark": 1.505}, ["about that of an n-gram model"]),
        ({"val_loss": None}, ["not evaluated"]),
        ({"log": MetricsLog({"val/loss": [(0, 4.0), (500, 1.5), (900, 2.1)]})}, ["lowest at step 500 and rose to 2.10"]),
        ({"log": MetricsLog({"train/loss": [(0, 4.0), (480, 0.5), (900, 0.1)]})}, ["training loss is 0.50", "memorised"]),
    ],
)
def test_the_verdict_says_what_the_numbers_say(changes, said):
    run = RunReport(
        **{
            **{"name": "a", "step": 500, "val_loss": 1.5, "parameters": 1, "engine": "", "texts": [], "config": Config()},
            **{"environment": {}, "log": MetricsLog(), **changes},
        }
    )
    assert all(part in verdict(run) for part in said)


def test_times_and_settings_are_for_people():
    assert [duration(s) for s in (5.4, 150, 3600, 30_000, 400_000)] == ["5 s", "2.5 min", "60 min", "8.3 h", "4.6 days"]
    assert [setting(v) for v in (True, [0.9, 0.99], "", "\n", "adamw", 3)] == ["true", "0.9, 0.99", "''", "'\\n'", "adamw", "3"]
    assert cut("abc", 3) == "abc" and cut("abcd", 3) == "abc …"
