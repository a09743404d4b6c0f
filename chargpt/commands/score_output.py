"""What `score` prints: the text as lines, in colour or as JSON, notes on the totals, and the comparison of two models."""

import heapq
import json
import math
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from chargpt.analysis.scored_text import HEAD, LABEL, Line, Summary, Total, describe_unknown
from chargpt.sampling.printing import LEGEND, NO_TERMINAL, coloured
from chargpt.sampling.surprise import stretches
from chargpt.terminal import escape_controls, json_line, log, one_line
from chargpt.text.tokenizer import Tokenizer


class LinePrinter:
    """Prints the bits per character, the bits, and the beginning of each line; or of the `top` lines of most bits."""

    def __init__(self, file: TextIO, *, top: int | None = None) -> None:
        self._file, self._top = file, top
        self._most: list[tuple[float, int, str]] = []  # a heap: bits, minus the place among all lines, and what is printed
        self._label, self._lines = "", 0
        print(f"{'bits/char':>9}{'bits':>10}  line", file=file)

    def begin(self, label: str) -> None:
        """Begin a text."""
        self._label = one_line(label)
        if self._top is None:
            print(f"{'':>19}  {self._label}", file=self._file)

    def add(self, line: Line) -> None:
        """Print a line, or keep it if it may be one of the `top` lines."""
        mean = "" if math.isnan(line.mean) else f"{line.mean:.3f}"
        where = f"{line.number}" if self._top is None else f"{self._label}:{line.number}"
        row = f"{mean:>9}{line.total:>10.1f}  {where}: {one_line(line.text.rstrip())}"
        self._lines += 1
        if self._top is None:
            print(row, file=self._file)
        elif len(self._most) < self._top:
            heapq.heappush(self._most, (line.total, -self._lines, row))
        else:
            heapq.heappushpop(self._most, (line.total, -self._lines, row))

    def end(self, summary: Summary) -> None:
        """Print the `top` lines; the totals are printed elsewhere."""
        for _, _, row in sorted(self._most, reverse=True):
            print(row, file=self._file)


class ColourPrinter:
    """Prints the text, on a terminal each character in the colour of its surprise, as sample.py --surprise."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._is_terminal = file.isatty()

    def begin(self, label: str) -> None:
        """Texts follow each other without a break."""

    def add(self, line: Line) -> None:
        """Print a line."""
        for surprise, start, stop in stretches(line.bits):
            text = line.text[start:stop]
            self._file.write(coloured(escape_controls(text), surprise) if self._is_terminal else text)

    def end(self, summary: Summary) -> None:
        """The totals are printed elsewhere."""


class JsonLinePrinter:
    """Prints a JSON object for each line, with the bits of each character (null: not predicted), and one of totals."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def begin(self, label: str) -> None:
        """Begin a text."""
        self._label = label

    def add(self, line: Line) -> None:
        """Print a line."""
        bits = [None if math.isnan(value) else round(value, 4) + 0.0 for value in line.bits.tolist()]
        self._print({"text": self._label, "line": line.number, "content": line.text, "bits": bits})

    def end(self, summary: Summary) -> None:
        """Print the totals."""
        self._print(summary.to_json())

    def _print(self, data: dict[str, Any]) -> None:
        self._file.write(json_line(data, self._file) + "\n")


Printer = LinePrinter | ColourPrinter | JsonLinePrinter


def new_printer(options: Namespace) -> Printer | None:
    """What prints the text, None if only the totals are wanted."""
    if options.json:
        return JsonLinePrinter(sys.stdout)
    if options.lines:
        return LinePrinter(sys.stdout, top=options.top)
    if options.surprise:
        log(LEGEND if sys.stdout.isatty() else NO_TERMINAL)
        return ColourPrinter(sys.stdout)
    return None


def print_notes(summary: Summary, tokenizer: Tokenizer, *, page: Path | None) -> None:
    """What a reader of the table has to know, on standard error."""
    facts, total = summary.facts, summary.total
    log(f"windows of {facts['context']:,} characters, one every {facts['stride']:,}")
    if total.unknown:
        log(describe_unknown(total, tokenizer))
    if summary.ngram is None:
        log("no n-gram model: the training text of the run is not in the cache, or the text is too short")
    if page:
        log(f"page: {page}")


class Difference(NamedTuple):
    """A line that two models have scored. A heap orders them by the bits, then by the number."""

    bits: float
    number: int  # of the line in all texts, from 0: no two are equal, so that lines are never compared
    label: str  # of the text
    first: Line
    second: Line


def print_comparison(scored: Sequence[tuple[str, Total]], most: Sequence[Difference]) -> None:
    """Print the totals of two runs, and the lines on which they differ `most`, as tables."""
    summary = Summary({}, texts=[(f"{letter} {run}", total) for letter, (run, total) in zip("AB", scored)])
    print(HEAD, *summary.table()[1:3], sep="\n")
    print(f"\n{'A bits':>9}{'B bits':>9}{'better':>8}{'by':>9}  line")
    for bits, _, label, a, b in most:
        better = "A" if a.total < b.total else "B" if b.total < a.total else ""
        where = f"{one_line(label)}:{a.number}" if len(label) < LABEL else f"…{one_line(label)[2 - LABEL :]}:{a.number}"
        print(f"{a.total:>9.1f}{b.total:>9.1f}{better:>8}{bits:>9.1f}  {where}: {one_line(a.text.rstrip())}")


def print_json_comparison(scored: Sequence[tuple[str, Total]], most: Sequence[Difference]) -> None:
    """Print the same as one JSON object."""
    summary = Summary({}, texts=list(scored))
    lines = [
        {"text": label, "line": a.number, "content": a.text, "bits": [round(a.total, 4), round(b.total, 4)]}
        for _, _, label, a, b in most
    ]
    print(json.dumps({"runs": summary.to_json()["texts"], "lines": lines}))
