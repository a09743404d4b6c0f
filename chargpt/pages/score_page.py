"""The page that `score --html` writes: one file without a network, the text coloured by surprise above everything else."""

import heapq
import math
import unicodedata
from itertools import groupby
from pathlib import Path

from markupsafe import Markup

from chargpt.analysis.scored_text import Line, Summary
from chargpt.markup import is_shown
from chargpt.pages.page import LEVELS, page, publish_page, render, source, stretches

# Characters that the page shows: more would make a browser slow.
MAX_CHARACTERS = 200_000
# The most surprising lines that are listed, and the characters of such a line.
LISTED, SHORTEST = 10, 12
# The code of the bits of a character for the script: its place is the number of quarters of a bit.
STEPS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_."


class Page:
    """Collects the lines of a text, as many as the page shows, and writes the page."""

    def __init__(self) -> None:
        self._shown: list[Markup] = []  # headings and lines
        self._characters = 0
        self._left_out = 0
        self._lines = 0
        self._is_full = False
        self._considered = 0  # lines that are long enough to be listed
        self._worst: list[tuple[float, int, Markup]] = []  # a heap of the most surprising lines

    def begin(self, label: str) -> None:
        """Begin a text."""
        self._shown.append(render("score_line.html.j2", heading=symbols(label)))

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
            self._shown.append(line_of(line, place, is_listed=False))
        if len(line.text.strip()) < SHORTEST or math.isnan(line.mean):
            return
        self._considered += 1
        if len(self._worst) < LISTED:
            heapq.heappush(self._worst, (line.mean, self._considered, line_of(line, place, is_listed=True)))
        elif line.mean > self._worst[0][0]:
            heapq.heapreplace(self._worst, (line.mean, self._considered, line_of(line, place, is_listed=True)))

    def write(self, target: Path, summary: Summary) -> None:
        """Write the page as the file `target`. Raises OSError."""
        publish_page(target, self.html(summary))

    def html(self, summary: Summary) -> str:
        """The page."""
        title, total = f"How well {summary.facts['run']} predicts a text", summary.total
        bars = [(f"model {summary.facts['run']}", total.bits_per_byte)]
        if summary.ngram is not None:
            order, bits = summary.ngram
            bars.append((f"order-{order} n-gram model of its training text", bits * total.ids / max(1, total.bytes)))
        bars += [(name, 8 * size / max(1, summary.bytes)) for name, size in summary.sizes.items()]
        body = render(
            "score.html.j2",
            facts=summary.facts,
            bars=bars,  # name and bits per byte, that of the model first
            longest=max(value for _, value in bars) or 1.0,
            texts=summary.texts if len(summary.texts) == 1 else [*summary.texts, ("all texts", total)],
            worst=[line for _, _, line in sorted(self._worst, reverse=True)],
            levels=[0, *LEVELS],
            left_out=self._left_out,
            characters=self._characters,
            shown=self._shown,
            symbols=symbols,
        )
        script = f'const steps = "{STEPS}";\n{source("score.js")}'
        return page(title, body=body, style=source("score.css"), script=script)


def line_of(line: Line, place: int | None, *, is_listed: bool) -> Markup:
    """A line of a text: its number and its characters in stretches of one level.

    `place` counts the lines that the page shows, None for one that it does not. A listed line links to its place.
    """
    return render(
        "score_line.html.j2",
        heading=None,
        line=line,
        place=place,
        is_listed=is_listed,
        codes="".join(map(code_of, line.bits.tolist())),
        stretches=[(level, symbols(line.text[start:stop])) for level, start, stop in stretches(line.bits)],
    )


def code_of(bits: float) -> str:
    """The bits of a character as one character, for the script."""
    if math.isnan(bits):
        return "-"
    step = round(4 * bits)
    return STEPS[step] if step < len(STEPS) else "+"


def symbols(text: str) -> list[tuple[str, str | None]]:
    """`text` in stretches, each with a title or None: one shown character for each, so that the script can count them.

    What is invisible, or could reorder a line, is replaced by a symbol, whose title says what it is.
    """
    return [
        ("".join(shown for shown, _ in group), title) for title, group in groupby(map(_symbol, text), key=lambda pair: pair[1])
    ]


def _symbol(character: str) -> tuple[str, str | None]:
    if character == "\n":
        return "⏎", ""
    if character == "\t" or unicodedata.category(character) != "Cc" and is_shown(character):
        return character, None
    point = ord(character)
    return chr(0x2400 + point) if point < 0x20 else "\u2421" if point == 0x7F else "\ufffd", f"U+{point:04X}"
