"""Charts as SVG: lines over steps, and bars. Colours are classes of report.css, so that a chart follows the dark mode."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from chargpt.markup import escape

MAX_POINTS = 400  # of a line; of more, the means of neighbours are drawn
MANY_POINTS = 20  # with so many, the first twentieth of a line may lie above a chart
COLOURS = 10  # .series-0 to .series-9 in report.css
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 30  # margins, in units of the drawing: a pixel at its natural size


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a chart."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int  # from 0 to COLOURS - 1
    is_faint: bool = False  # thin and pale, for noisy values behind another line
    band: Sequence[tuple[float, float, float]] = ()  # around the line: places, and the values below and above it
    has_dots: bool = False  # each point with a dot, which shows its numbers when pointed at

    @property
    def values(self) -> list[float]:
        """What a chart of it shows."""
        return [*(y for _, y in self.points), *(y for _, *edges in self.band for y in edges)]


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
    is_log: bool = False,
    marks: Sequence[float] = (),
) -> Markup:
    """A chart of lines over steps, as an <svg> element; empty if there is nothing to draw. `marks` are levels.

    With `is_log`, the vertical axis is logarithmic and holds every value, if all are above 0. On a linear axis, values far
    above the rest at the start are drawn at the upper edge.
    """
    lines = [line for line in lines if line.points]
    if not lines:
        return Markup("")
    is_log = is_log and min([*marks, *(y for line in lines for y in line.values)]) > 0
    first, last = min(line.points[0][0] for line in lines), max(line.points[-1][0] for line in lines)
    steps = (0.0 if first < 0.1 * last else first), max(last, first + 1)
    axes = Axes(x=steps, y=_values(lines, marks, is_log), width=width, height=height, is_log=is_log)
    right = width - RIGHT
    levels = [f'<path class="mark" d="M{LEFT} {axes.place(axes.x[0], y)[1]:.1f}H{right}"/>' for y in marks]
    parts = [_grid(axes), *levels, *(_line(line, axes) for line in sorted(lines, key=lambda line: not line.is_faint))]
    return _svg("".join(parts), title=title, width=width, height=height)


def bar_chart(rows: Sequence[tuple[str, float, str]], *, title: str, colour: int = 0) -> Markup:
    """Horizontal bars from zero, one for each (name, value, words at its end), as an <svg> element; empty without rows."""
    if not rows:
        return Markup("")
    longest = max(max(value for _, value, _ in rows), 1e-9)
    width, names, words, step = 440, 136, 100, 24
    parts = []
    for i, (name, value, said) in enumerate(rows):
        length = (width - names - words) * max(value, 0) / longest
        middle = i * step + 16
        parts.append(
            f'<text x="{names - 8}" y="{middle}" class="end">{escape(name)}</text>'
            f'<rect class="series-{colour} bar" x="{names}" y="{middle - 11}" width="{length:.1f}" height="15" rx="2"/>'
            f'<text x="{names + length + 6:.1f}" y="{middle}" class="value">{escape(said)}</text>'
        )
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
    for least, size, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= least:
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"


def thinned(points: Sequence[tuple[float, float]], most: int = MAX_POINTS) -> list[tuple[float, float]]:
    """The points, or of more than `most` the means of groups of neighbours."""
    groups = np.array_split(np.array(points, np.float64).reshape(-1, 2), min(most, max(1, len(points))))
    return [tuple(group.mean(axis=0).tolist()) for group in groups]


def _values(lines: Sequence[Line], marks: Sequence[float], is_log: bool) -> tuple[float, float]:
    """The range of the vertical axis: all values; on a linear axis 0, and of a long line those after its first twentieth."""
    values = [*marks, *(y for line in lines for y in line.values)]
    low = min(values)
    if is_log:
        margin = 1.03 * (1.1 if low == max(values) else 1)
        return low / margin, max(values) * margin
    later = list(marks)
    for line in lines:
        begin = line.points[0][0] + (line.points[-1][0] - line.points[0][0]) / 20
        later += [y for x, y in line.points if x >= begin or len(line.points) < MANY_POINTS]
    margin = 0.05 * (max(later) - min(low, 0.0)) or 1.0
    return (low - margin if low < 0 else 0.0), max(later) + margin


def _levels(axes: Axes) -> list[float]:
    """The ticks of the vertical axis: on a logarithmic one, the fewest round numbers of each decade that are enough."""
    low, high = axes.y
    decades = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1) if axes.is_log else ()
    for steps in ((1, 2, 5), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 7)):
        found = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(found) > 2:
            return found[:: 1 + len(found) // 8]
    return ticks(low, high, most=max(2, min(6, axes.height // 40)))


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
    """The line, at the upper edge of the chart where its values lie above."""
    top, named = axes.y[1], f'class="series-{line.colour} '
    path = "L".join("{:.1f} {:.1f}".format(*axes.place(x, min(y, top))) for x, y in thinned(line.points))
    drawn = f'<path {named}{"faint" if line.is_faint else "line"}" d="M{path}"/>'
    if line.band:
        edges = [*((x, low) for x, low, _ in line.band), *((x, high) for x, _, high in reversed(line.band))]
        around = "L".join("{:.1f} {:.1f}".format(*axes.place(x, min(y, top))) for x, y in edges)
        drawn = f'<path {named}band" d="M{around}Z"/>{drawn}'
    for x, y in thinned(line.points, 100) if line.has_dots else []:
        at = 'cx="{:.1f}" cy="{:.1f}"'.format(*axes.place(x, min(y, top)))
        said = escape(f"{line.name}, step {x:,.0f}: {y:.4g}")
        drawn += f'<circle {named}dot" {at} r="3"><title>{said}</title></circle>'
    return drawn


def _svg(content: str, *, title: str, width: int, height: int) -> Markup:
    return Markup(
        f'<svg class="chart" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(title)}">{content}</svg>'
    )
