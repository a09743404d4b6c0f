"""Charts are well-formed, stay inside their frame for any numbers, and show names as text."""

import math
import re
import xml.etree.ElementTree as ElementTree

import pytest

from chargpt.pages.charts import Line, bar_chart, line_chart, short, thinned, ticks

HARD = [
    [(0, 4.3), (10, 3.0), (20, 2.0), (1000, 1.5)],
    [(0, 1.0)],
    [(0, 2.0), (10, 2.0)],
    [(0, 9e29), (10, -9e29)],
    [(0, 1e-300), (1, 2e-300), (2, 1e-300)],
    [(10**15 - 1, 1.0)],
]


@pytest.mark.parametrize("is_log", [False, True])
@pytest.mark.parametrize("points", HARD)
def test_every_point_is_inside_the_frame(points, is_log):
    chart = line_chart([Line(name="a", points=points, colour=0, has_dots=True)], title="t", is_log=is_log)
    root = ElementTree.fromstring(chart)
    width, height = int(root.get("width")), int(root.get("height"))
    for path in root.iter("path"):
        if "line" in path.get("class"):
            places = [tuple(map(float, pair.split())) for pair in path.get("d")[1:].split("L")]
            assert places and all(0 <= x <= width and 0 <= y <= height for x, y in places)


@pytest.mark.parametrize("is_log", [False, True])
def test_the_labels_of_both_axes_stand_where_their_values_are_drawn(is_log):
    line = Line(name="a", points=[(0, 1.0), (500, 2.0), (1000, 3.0)], colour=0, has_dots=True)
    root = ElementTree.fromstring(line_chart([line], title="t", is_log=is_log))
    labels = {(text.text, text.get("class")): text for text in root.iter("text")}
    across = {content: float(text.get("x")) for (content, _), text in labels.items() if float(text.get("x")) > 50}
    down = {content: float(text.get("y")) for (content, _), text in labels.items() if float(text.get("x")) < 50}
    for dot, (x, y) in zip(root.iter("circle"), line.points):
        assert across[f"{x}"] == pytest.approx(float(dot.get("cx")), abs=0.1)
        assert down[f"{y:.0f}"] == pytest.approx(float(dot.get("cy")), abs=5)  # the baseline of the letters is below it


def test_a_logarithmic_axis_shows_the_start():
    points = [(0, 4.6), (100, 2.0), (1000, 1.5), (2000, 1.4)]
    drawn = [line_chart([Line(name="a", points=points, colour=0)], title="t", is_log=is_log) for is_log in (False, True)]
    places = [re.search(r'd="M([0-9. L]+)"/>(?!.*series)', chart)[1].split("L") for chart in drawn]
    assert len(places[1]) == len(points)  # nothing is cut off
    down = [float(pair.split()[1]) for pair in places[1]]
    assert (down[1] - down[0]) / (down[2] - down[1]) == pytest.approx(math.log(4.6 / 2) / math.log(2 / 1.5), abs=0.02)
    assert re.findall(r'class="end"[^>]*>([^<]+)<', drawn[1])[:5] == ["1.5", "2", "2.5", "3", "4"]


def test_hostile_names_are_text():
    hostile = "</svg><script>\x1b\u202e\"'"
    lines = [Line(name=hostile, points=[(0, 1.0), (1, 2.0)], colour=0, has_dots=True)]
    for chart in (
        line_chart(lines, title=hostile, marks=[1.5]),
        bar_chart([(hostile, 1.0, hostile)], title=hostile),
    ):
        assert "<script" not in chart and "\x1b" not in chart and "\u202e" not in chart and "style=" not in chart
        ElementTree.fromstring(chart)


def test_ticks_are_round_and_inside():
    assert ticks(0.0, 1.0, most=5) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    for low, high in [(1.63, 2.63), (-3e-9, 7e-9), (0, 12345), (5, 5.001)]:
        found = ticks(low, high, most=5)
        assert 2 <= len(found) <= 6 and all(low - 1e-9 * abs(high) <= tick <= high * (1 + 1e-9) for tick in found)
    assert [short(x) for x in (0, 0.003, 1.5, 2000, 20_000, 3e6)] == ["0", "0.003", "1.5", "2000", "20k", "3M"]


def test_thinning_keeps_the_mean():
    points = [(i, float(i % 7)) for i in range(4000)]
    few = thinned(points, 400)
    assert len(few) == 400 and sum(y for _, y in few) / 400 == pytest.approx(sum(y for _, y in points) / 4000)
