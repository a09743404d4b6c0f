"""The parts of a report show the numbers that they are given."""

import numpy as np

from chargpt.insight.report_parts import coloured, cut, duration, setting
from chargpt.insight.scored_text import Line


def test_the_colour_of_a_character_is_its_surprise():
    line = Line(1, "ab<c\n", np.array([np.nan, 0.1, 20.0, 1.5, 0.0]))
    assert coloured(line, 100) == 'ab<span class="heat-9">&lt;</span><span class="heat-2">c</span>\n'
    assert coloured(line, 2) == "ab …"


def test_times_and_settings_are_for_people():
    assert [duration(s) for s in (5.4, 150, 3600, 30_000, 400_000)] == ["5 s", "2.5 min", "60 min", "8.3 h", "4.6 days"]
    assert [setting(v) for v in (True, [0.9, 0.99], "", "\n", "adamw", 3)] == ["true", "0.9, 0.99", "''", "'\\n'", "adamw", "3"]
    assert cut("abc", 3) == "abc" and cut("abcd", 3) == "abc …"
