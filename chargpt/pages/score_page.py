"""The page that `score --html` writes: one file without a network, the text coloured by surprise above everything else."""

import heapq
import html
import math
import unicodedata
from pathlib import Path

import numpy as np

from chargpt.analysis.scored_text import Line, Summary
from chargpt.markup import is_shown
from chargpt.pages.page import page, publish_page, source

MAX_CHARACTERS = 200_000  # that the page shows: more would make a browser slow
LISTED = 10  # of the most surprising lines
SHORTEST = 12  # characters of such a line
LEVELS = (0.25, 0.5, 1, 2, 3, 4.5, 6.5, 9)  # bits at which a deeper colour begins
STEPS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_."  # bits of a character, in quarters


class Page:
    """Collects the lines of a text, as many as the page shows, and writes the page."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._characters = 0
        self._left_out = 0
        self._lines = 0
        self._is_full = False
        self._considered = 0  # lines that are long enough to be listed
        self._worst: list[tuple[float, int, str]] = []  # a heap of the most surprising lines

    def begin(self, label: str) -> None:
        """Begin a text."""
        self._parts.append(f"<h2>{_text(label)}</h2>")

    def add(self, line: Line) -> None:
        """Show a line, unless the page is full. The most surprising lines are listed also from what is not shown."""
        self._is_full = self._is_full or self._characters + len(line.text) > MAX_CHARACTERS
        place = None
        if self._is_full:
            self._left_out += len(line.text)
        else:
            self._characters += len(line.text)
            self._lines += 1
            place = self._lines
            self._parts.append(_line(line, place, is_listed=False))
        if len(line.text.strip()) < SHORTEST or math.isnan(line.mean):
            return
        self._considered += 1
        if len(self._worst) < LISTED:
            heapq.heappush(self._worst, (line.mean, self._considered, _line(line, place, is_listed=True)))
        elif line.mean > self._worst[0][0]:
            heapq.heapreplace(self._worst, (line.mean, self._considered, _line(line, place, is_listed=True)))

    def write(self, target: Path, summary: Summary) -> None:
        """Write the page as the file `target`. Raises OSError."""
        publish_page(target, self.html(summary))

    def html(self, summary: Summary) -> str:
        """The page."""
        facts = summary.facts
        bars, bar_style = _bars(summary)
        title = f"How well {facts['run']} predicts a text"
        shown = f"The first {self._characters:,} characters of {self._characters + self._left_out:,} are shown."
        left_out = f'<p class="quiet">{shown}</p>' if self._left_out else ""
        worst = "".join(shown for _, _, shown in sorted(self._worst, reverse=True))
        body = f"""<h1>{_text(title)}</h1>
<p>The model of run <b>{_text(str(facts["run"]))}</b>, step {facts["step"]:,}, predicts each character from those before it. A
character of <i>n</i> bits had the probability 1/2<sup>n</sup>. <span class="quiet">Windows of {facts["context"]:,}
characters, one every {facts["stride"]:,}.</span></p>
{bars}
{_texts_table(summary)}
<h2>Most surprising lines</h2>
<p class="quiet">Bits per character, and the line.</p>
{worst or '<p class="quiet">No line is long enough.</p>'}
<h2>The text</h2>
<p class="key">Bits: {_key()} <span class="quiet">Point at a character to see its own.</span></p>
{left_out}
{"".join(self._parts)}
<div id="about" class="quiet screen-only">Point at a character.</div>"""
        script = f'const steps = "{STEPS}";\n{source("score.js")}'
        return page(title, body=body, style=source("score.css") + bar_style, script=script)


def _line(line: Line, place: int | None, *, is_listed: bool) -> str:
    """A line of a text: its number and its characters in stretches of one colour.

    `place` counts the lines that the page shows, None for one that it does not. A listed line links to its place.
    """
    bits = line.bits
    predicted = np.nan_to_num(bits)
    levels = np.searchsorted(LEVELS, predicted, side="right")
    levels = np.where(np.isnan(bits), 0, levels)
    ends = np.flatnonzero(np.diff(levels)) + 1
    stretches = []
    for start, stop in zip([0, *ends.tolist()], [*ends.tolist(), len(levels)]):
        shown = "".join(map(_character, line.text[start:stop]))
        stretches.append(f'<span class="s{levels[start]}">{shown}</span>' if levels[start] else shown)
    codes = "".join(_code(value) for value in bits.tolist())
    link = f' href="#l{place}"' if is_listed and place is not None else ""
    head = f'<a class="n"{link}>{line.number}</a>'
    mean = f'<span class="b">{line.mean:.2f}</span>' if is_listed else ""
    name = "" if is_listed else f' id="l{place}"'
    return f'<div class="l"{name}>{head}{mean}<span class="t" data-bits="{codes}">{"".join(stretches)}</span></div>\n'


def _code(bits: float) -> str:
    """The bits of a character as one character, for the script."""
    if math.isnan(bits):
        return "-"
    step = round(4 * bits)
    return STEPS[step] if step < len(STEPS) else "+"


def _character(character: str) -> str:
    """One character as HTML that shows one character: what is invisible, or could reorder a line, is replaced by a symbol."""
    if character == "\n":
        return "<i>⏎</i>"
    if character == "\t" or unicodedata.category(character) != "Cc" and is_shown(character):
        return html.escape(character)
    point = ord(character)
    symbol = chr(0x2400 + point) if point < 0x20 else "\u2421" if point == 0x7F else "\ufffd"
    return f'<i title="U+{point:04X}">{symbol}</i>'


def _text(text: str) -> str:
    """A name as HTML."""
    return "".join(map(_character, text))


def _key() -> str:
    """The legend of the colours."""
    ends = [0, *LEVELS]
    return "".join(f'<span class="s{i}">{end:g}{"+" if i == len(LEVELS) else ""}</span>' for i, end in enumerate(ends))


def _bars(summary: Summary) -> tuple[str, str]:
    """The comparison with other programs in bits per byte as a table with bars, and the style of the bars."""
    total = summary.total
    rows = [(f"model {summary.facts['run']}", total.bits_per_byte)]
    if summary.ngram is not None:
        order, bits = summary.ngram
        rows.append((f"order-{order} n-gram model of its training text", bits * total.ids / max(1, total.bytes)))
    absent = []
    for name, size in summary.sizes.items():
        if size is None:
            absent.append(name)
        else:
            rows.append((name, 8 * size / max(1, summary.bytes)))
    longest = max(value for _, value in rows) or 1.0
    cells, style = [], []
    for i, (name, value) in enumerate(rows):
        own = " own" if i == 0 else ""
        cells.append(
            f'<tr><td>{_text(name)}</td><td>{value:.3f}</td><td class="bars"><span class="bar{own}" id="w{i}"></span></td></tr>'
        )
        style.append(f"#w{i}{{width:{100 * value / longest:.1f}%}}")
    note = f'<p class="quiet">Not present on this machine: {", ".join(absent)}.</p>' if absent else ""
    table = f"<table><tr><th></th><th>bits per byte</th><th></th></tr>{''.join(cells)}</table>{note}"
    return table, "".join(style)


def _texts_table(summary: Summary) -> str:
    """The numbers of each text."""
    rows = summary.texts if len(summary.texts) == 1 else [*summary.texts, ("all texts", summary.total)]
    cells = [
        f'<tr><td>{_text(label)}</td><td>{total.characters:,}</td><td class="second-rank">{total.bytes:,}</td>'
        f"<td>{total.bits_per_character:.4f}</td><td>{total.loss:.4f}</td></tr>"
        for label, total in rows
    ]
    names = '<th>text</th><th>characters</th><th class="second-rank">bytes</th><th>bits per character</th><th>loss, nats</th>'
    return f"<h2>Texts</h2><table><tr>{names}</tr>{''.join(cells)}</table>"
