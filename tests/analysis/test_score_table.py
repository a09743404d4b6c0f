"""The table of `score`."""

import math

from chargpt.analysis.scored_text import Summary, Total


def test_each_figure_of_the_table_is_a_total_divided_by_its_own_count():
    """Characters, bytes and ids differ; other programs also read the first character of each text, which is not predicted."""
    texts = [(name, Total(characters=99, bytes=199, ids=149, bits=398.0)) for name in "ab"]
    summary = Summary({}, texts, characters=200, bytes=400, sizes={"gzip -9": 300}, ngram=(3, 2.0))
    rows = [row.split() for row in summary.table()[1:]]
    loss = f"{398 / 149 * math.log(2):.4f}"
    assert rows[0] == ["a", "99", "199", "50", f"{398 / 99:.4f}", "2.0000", loss]
    assert rows[2] == ["all", "texts", "198", "398", "100", f"{398 / 99:.4f}", "2.0000", loss]
    assert rows[3] == ["gzip", "-9", "200", "400", "300", "12.0000", "6.0000"]
    per_character, per_byte = 2 * 298 / 198, 2 * 298 / 398
    assert rows[4] == ["order-3", "n-gram", f"{per_character:.4f}", f"{per_byte:.4f}", f"{2 * math.log(2):.4f}"]
    figures = summary.to_json()["total"]
    assert figures["bits_per_character"] == round(398 / 99, 6) and figures["bits_per_byte"] == 2.0
    assert figures["loss"] == round(398 / 149 * math.log(2), 6)
