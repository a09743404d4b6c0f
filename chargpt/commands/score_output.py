"""What `score` prints: the table of totals, and the text as lines, in colour or as JSON."""

import math
from typing import Any, TextIO

from chargpt.analysis.scored_text import Line, Summary
from chargpt.commands.frame import json_line
from chargpt.sampling.printing import coloured
from chargpt.sampling.surprisal import stretches
from chargpt.terminal import escape_controls, one_line


class LinePrinter:
    """Prints the bits per character, the bits, and the beginning of each line."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        print(f"{'bits/char':>9}{'bits':>10}  line", file=file)

    def begin(self, label: str) -> None:
        """Begin a text."""
        print(f"{'':>19}  {one_line(label)}", file=self._file)

    def add(self, line: Line) -> None:
        """Print a line."""
        mean = "" if math.isnan(line.mean) else f"{line.mean:.3f}"
        print(f"{mean:>9}{line.total:>10.1f}  {line.number}: {one_line(line.text.rstrip())}", file=self._file)

    def end(self, summary: Summary) -> None:
        """The totals are printed elsewhere."""


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
