"""Charts as SVG: lines over steps, and bars. Colours are classes of report.css, so that a chart follows the dark mode."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from chargpt.markup import escape

# Points of a line; of more, the means of neighbours are drawn.
MAX_POINTS = 400
# With this many points, the first twentieth of a line may lie above a chart.
MANY_POINTS = 20
# .series-0 to .series-9 in report.css.
COLOURS = 10
# Margins, in units of the drawing: a pixel at its natural size.
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 30
# The width of a letter of a label, on average, and the height of its line, in the same unit.
LETTER, LABEL_HEIGHT = 6.6, 14
# Where a logarithmic axis may have ticks, in each decade.
ROUND = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a chart."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int  # from 0 to COLOURS - 1
    is_faint: bool = False  # thin and pale, for noisy values behind another line
    has_dots: bool = False  # each point with a dot, which shows its numbers when pointed at


@dataclass(frozen=True, kw_only=True)
class Axes:
    """The range of a chart, and its size. With `is_log`, the vertical axis is logarithmic."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: int
    height: int
    is_log: bool = False

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Where a point is drawn."""
        across, down = self.width - LEFT - RIGHT, self.height - TOP - BOTTOM
        low, high, y = (math.log(value) if self.is_log else value for value in (*self.y, y))
        return LEFT + across * (x - self.x[0]) / (self.x[1] - self.x[0]), TOP + down * (high - y) / (high - low)


def line_chart(
    lines: Sequence[Line],
    *,
    title: str,
    width: int = 440,
    height: int = 250,
    from_zero: bool = False,
    is_log: bool = False,
    marks: Sequence[tuple[str, float]] = (),
) -> Markup:
    """A chart of lines over steps, as an <svg> element; empty if there is nothing to draw. `marks` are levels with a name.

    With `is_log`, the vertical axis is logarithmic and holds every value, if all are above 0. On a linear axis, values far
    above the rest at the start lie above the chart, and their line enters it.
    """
    lines = [line for line in lines if line.points]
    if not lines:
        return Markup("")
    levels = [y for _, y in marks]
    is_log = is_log and min([y for line in lines for _, y in line.points] + levels) > 0
    axes = Axes(x=_steps(lines), y=_values(lines, levels, from_zero, is_log), width=width, height=height, is_log=is_log)
    parts = [_grid(axes)]
    for _, y in marks:
        (x0, at), (x1, _) = axes.place(axes.x[0], y), axes.place(axes.x[1], y)
        parts.append(f'<path class="mark" d="M{x0:.1f} {at:.1f}H{x1:.1f}"/>')
    parts += [_line(line, axes) for line in sorted(lines, key=lambda line: not line.is_faint)]
    parts += [_mark_name(name, y, lines, axes) for name, y in marks]
    return _svg("".join(parts), title=title, width=width, height=height)


def bar_chart(rows: Sequence[tuple[str, float, str]], *, title: str, colour: int = 0, width: int = 440) -> Markup:
    """Horizontal bars from zero, one for each (name, value, words at its end), as an <svg> element; empty without rows."""
    if not rows:
        return Markup("")
    longest = max(max(value for _, value, _ in rows), 1e-9)
    names, words, step = 136, 100, 24
    parts = []
    for i, (name, value, said) in enumerate(rows):
        length = (width - names - words) * max(value, 0) / longest
        middle = i * step + 16
        parts.append(f'<text x="{names - 8}" y="{middle}" class="end">{escape(name)}</text>')
        parts.append(
            f'<rect class="series-{colour} bar" x="{names}" y="{middle - 11}" width="{length:.1f}" height="15" rx="2"/>'
        )
        parts.append(f'<text x="{names + length + 6:.1f}" y="{middle}" class="value">{escape(said)}</text>')
    return _svg("".join(parts), title=title, width=width, height=len(rows) * step + 4)


def ticks(low: float, high: float, *, most: int) -> list[float]:
    """Round numbers from `low` to `high`, at most `most` + 1: multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)]


def short(value: float) -> str:
    """A number for an axis: 0.003, 1.5, 200, 20k, 3M, 1e-05."""
    if value == 0:
        return "0"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.4g}{unit}"
    return f"{value:.4g}"


def thinned(points: Sequence[tuple[float, float]], most: int = MAX_POINTS) -> list[tuple[float, float]]:
    """The points, or of more than `most` the means of groups of neighbours."""
    if len(points) <= most:
        return list(points)
    bounds = [len(points) * i // most for i in range(most + 1)]
    groups = [points[start:stop] for start, stop in zip(bounds, bounds[1:])]
    return [(sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group)) for group in groups]


def _steps(lines: Sequence[Line]) -> tuple[float, float]:
    """The range of the horizontal axis."""
    first = min(line.points[0][0] for line in lines)
    last = max(line.points[-1][0] for line in lines)
    return (0.0 if first < 0.1 * last else first), max(last, first + 1)


def _values(lines: Sequence[Line], marks: Sequence[float], from_zero: bool, is_log: bool) -> tuple[float, float]:
    """The range of the vertical axis: all values; of a long line on a linear axis, those after its first twentieth."""
    values = list(marks)
    if is_log:
        values += [y for line in lines for _, y in line.points]
        margin = 1.03 * (1.1 if min(values) == max(values) else 1)
        return min(values) / margin, max(values) * margin
    for line in lines:
        begin = line.points[0][0] + (line.points[-1][0] - line.points[0][0]) / 20
        values += [y for x, y in line.points if x >= begin or len(line.points) < MANY_POINTS]
    lowest = min([*marks, *(y for line in lines for _, y in line.points)])  # also one at the start: nothing is cut off below
    low, high = (0.0 if from_zero else lowest), max(values)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return (0.0 if from_zero else low - margin), high + margin


def _levels(axes: Axes) -> list[float]:
    """The ticks of the vertical axis."""
    most = max(2, min(6, axes.height // 40))
    if not axes.is_log:
        return ticks(*axes.y, most=most)
    low, high = axes.y
    decades = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    for steps in (ROUND, (1, 1.5, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
        found = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(found) <= most + 2:
            break
    return found[:: 1 + len(found) // (most + 2)] if len(found) > 2 else ticks(low, high, most=most)


def _mark_name(name: str, y: float, lines: Sequence[Line], axes: Axes) -> str:
    """The name of a level, above or below it and at either end, wherever the lines are farthest away."""
    width, middle_height = LETTER * len(name), LABEL_HEIGHT / 2
    left, right, at = LEFT + 4.0, axes.width - RIGHT, axes.place(axes.x[0], y)[1]
    drawn = [[axes.place(*point) for point in thinned(line.points)] for line in lines]
    choices = []
    for is_left in (False, True):
        x0, x1 = (left, left + width) if is_left else (right - width, right)
        for middle in (at - 4 - middle_height, at + 4 + middle_height):
            inside = TOP <= middle - middle_height and middle + middle_height <= axes.height - BOTTOM
            distance = min((_distance(places, x0, x1, middle) for places in drawn), default=math.inf)
            choices.append((inside, min(distance, 2 * LABEL_HEIGHT), not is_left, middle < at, middle))
    _, _, is_right, _, middle = max(choices)
    kind, x = ("end", right) if is_right else ("start", left)
    return f'<text class="{kind}" x="{x:.1f}" y="{middle + 4:.1f}">{escape(name)}</text>'


def _distance(places: Sequence[tuple[float, float]], x0: float, x1: float, y: float) -> float:
    """How far, up or down, a drawn line is from `y` between x0 and x1; infinite where it is not drawn."""
    least = math.inf
    for (ax, ay), (bx, by) in zip(places, places[1:] or places):
        if max(ax, bx) < x0 or min(ax, bx) > x1:
            continue
        if min(ay, by) <= y <= max(ay, by):
            return 0.0
        least = min(least, abs(ay - y), abs(by - y))
    return least


def _grid(axes: Axes) -> str:
    parts = []
    right, bottom = axes.width - RIGHT, axes.height - BOTTOM
    for value in _levels(axes):
        _, y = axes.place(axes.x[0], value)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>')
        parts.append(f'<text class="end" x="{LEFT - 7}" y="{y + 4:.1f}">{short(value)}</text>')
    for value in ticks(*axes.x, most=2 if axes.width < 300 else 4 if axes.width < 600 else 8):
        x, _ = axes.place(value, axes.y[0])
        anchor = "end" if x > right - 12 else "middle"
        parts.append(f'<text class="{anchor}" x="{x:.1f}" y="{bottom + 18}">{short(value)}</text>')
    parts.append(f'<path class="axis" d="M{LEFT} {bottom}H{right}"/>')
    return "".join(parts)


def _line(line: Line, axes: Axes) -> str:
    """The line, cut off at the upper edge of the chart where its values lie above."""
    points = _below(thinned(line.points), axes.y[1])
    path = "L".join("{:.1f} {:.1f}".format(*axes.place(x, y)) for x, y in points)
    drawn = f'<path class="series-{line.colour} {"faint" if line.is_faint else "line"}" d="M{path}"/>'
    dots = [(x, y) for x, y in thinned(line.points, 100) if y <= axes.y[1]] if line.has_dots else []
    for x, y in dots:
        at = 'cx="{:.1f}" cy="{:.1f}"'.format(*axes.place(x, y))
        said = escape(f"{line.name}, step {x:,.0f}: {y:.4g}")
        drawn += f'<circle class="series-{line.colour} dot" {at} r="3"><title>{said}</title></circle>'
    return drawn


def _below(points: list[tuple[float, float]], top: float) -> list[tuple[float, float]]:
    """The same line with its parts above `top` moved down to it, and the points where it crosses `top`."""
    cut: list[tuple[float, float]] = []
    for i, (x, y) in enumerate(points):
        if i and (points[i - 1][1] > top) != (y > top):
            x0, y0 = points[i - 1]
            cut.append((x0 + (x - x0) * (top - y0) / (y - y0), top))
        if y <= top or not i:
            cut.append((x, min(y, top)))
    while len(cut) > 1 and cut[0][1] == cut[1][1] == top:  # the line begins where it enters the chart
        cut.pop(0)
    return cut


def _svg(content: str, *, title: str, width: int, height: int) -> Markup:
    return Markup(
        f'<svg class="chart" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(title)}">{content}</svg>'
    )
