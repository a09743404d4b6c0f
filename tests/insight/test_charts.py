"""Charts are well-formed, stay inside their frame for any numbers, and show names as text."""

import random
import re
import xml.etree.ElementTree as ElementTree

import pytest

from chargpt.insight.charts import Line, bar_chart, line_chart, short, thinned, ticks

HARD = [
    [(0, 4.3), (10, 3.0), (20, 2.0), (1000, 1.5)],
    [(0, 1.0)],
    [(0, 2.0), (10, 2.0)],
    [(0, 9e29), (10, -9e29)],
    [(0, 1e-300), (1, 2e-300), (2, 1e-300)],
    [(10**15 - 1, 1.0)],
]


@pytest.mark.parametrize("points", HARD)
def test_every_point_is_inside_the_frame(points):
    chart = line_chart([Line(name="a", points=points, colour=0, has_dots=True)], title="t")
    root = ElementTree.fromstring(chart)
    width, height = int(root.get("width")), int(root.get("height"))
    for path in root.iter("path"):
        if "line" in path.get("class"):
            places = [tuple(map(float, pair.split())) for pair in path.get("d")[1:].split("L")]
            assert places and all(0 <= x <= width and 0 <= y <= height for x, y in places)


def test_the_order_of_values_is_that_of_the_places():
    points = [(i, random.Random(i).random()) for i in range(50)]
    chart = line_chart([Line(name="a", points=points, colour=0)], title="t")
    drawn = re.search(r'class="series-0 line" d="M(.*?)"', chart)[1].split("L")
    heights = [-float(pair.split()[1]) for pair in drawn]
    late = range(3, 50)  # the first ones may be cut off
    assert len(drawn) >= 50 and sorted(late, key=lambda i: heights[i - 50]) == sorted(late, key=lambda i: points[i][1])


def test_hostile_names_are_text():
    hostile = "</svg><script>\x1b\u202e\"'"
    lines = [Line(name=hostile, points=[(0, 1.0), (1, 2.0)], colour=0, has_dots=True)]
    for chart in (
        line_chart(lines, title=hostile, marks=[(hostile, 1.5)]),
        bar_chart([(hostile, 1.0, hostile)], title=hostile),
    ):
        assert "<script" not in chart and "\x1b" not in chart and "\u202e" not in chart and "style=" not in chart
        ElementTree.fromstring(chart)


def test_nothing_to_draw_gives_nothing():
    assert line_chart([Line(name="a", points=[], colour=0)], title="t") == "" == bar_chart([], title="t")


def test_a_bar_is_as_long_as_its_value():
    chart = bar_chart([("a", 2.0, ""), ("b", 1.0, ""), ("c", 0.0, "")], title="t")
    widths = [float(width) for width in re.findall(r'<rect .*?width="(.*?)"', chart)]
    assert widths[0] == 2 * widths[1] > 0 == widths[2]


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
