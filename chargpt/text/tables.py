"""Tables: CSV and TSV, by the name of a file or by its first lines. `table_rows.py` reads them."""

import csv
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import dropwhile, islice
from typing import Any

from chargpt.text.kind import Head, Kind, Structure, reader, structure_with

ROWS = 200  # rows of the head that are compared
SAME_WIDTH = 0.9  # share of the rows of a table that are as wide as the first; the others have a mistake
SURE_ROWS = 10  # rows of equal width in a file whose name does not say that it is a table
NAME = re.compile(r"[^\W\d][\w .()/%#-]{0,39}(?<!\.)")  # a column's name: it begins with a letter, and is not a sentence
EXCEL = re.compile(r"sep=(.)\r?\n?$")  # the line before a table with which Excel names the separator
ESCAPE = re.compile(r'\\(["\\])')  # of a quote in a field in quotes, which other programs write twice
Guess = tuple[Structure, float]  # a table, and the share of its rows that are as wide as the first


def _find(kind: Kind, head: Head) -> Structure | None:
    """The table in a file. If its name says nothing, it is one if it has the column that is asked for, which may be a number,
    or if all its lines are as those of a table; CSV looks for both kinds."""
    if head.suffix in kind.suffixes:
        return _best(kind, head, ",;\t|" if kind is CSV else "\t")[0]
    if kind is TSV or head.start[:1] in ("{", "["):
        return None
    is_number, lines = head.field.isdecimal(), head.text.split("\n")[: ROWS + 1]
    # A number may be that of a column of two, the first word of a line and the rest.
    found, same_width = _best(kind, head, "\t,;" + " " * (is_number and " " in lines[0].strip()))
    names, lines = found.fields, [line for line in lines if line.strip()]
    if head.field and head.field in names or is_number:
        return found if same_width > SAME_WIDTH or head.field in names else None
    has_names = are_names(names) and len({*names}) == len(names) > 2
    are_tabs = found.kind is TSV and len(names) > 1  # with or without a header: pairs of sentences
    are_alike = same_width == 1 and len(lines) > SURE_ROWS and not any(line[0].isspace() for line in lines)
    return found if are_alike and (are_tabs or has_names) else None


def _best(kind: Kind, head: Head, delimiters: str) -> Guess:
    """The table with the column that is asked for, or else whose rows fit together, not by spaces if any other one does."""

    def merit(guess: Guess) -> tuple[bool, bool, bool, float]:
        structure, same_width = guess
        return head.field in structure.fields, same_width > SAME_WIDTH, structure.delimiter != " ", same_width

    kinds = {one: kind if head.suffix in kind.suffixes else CSV if one in ",;" else TSV for one in delimiters}
    guesses = [_guess(kinds[one], head, one) for one in delimiters]
    return max([guess for guess in guesses if len(guess[0].fields) > 1] or guesses, key=merit)


def _guess(kind: Kind, head: Head, delimiter: str) -> Guess:
    """The table in `head` if `delimiter` divides its fields."""
    lines = re.split("\r\n|\r|\n", head.text)
    rows, is_quoted, is_escaped = _first_rows([*dropwhile(partial(is_before, delimiter), lines)], delimiter)
    first, *others = rows[:-1] or rows or [[]]
    names = tuple(name.strip() for name in first)
    alike = [row for row in others if len(row) == len(names)]
    texts = dict(zip(names, zip(*alike)))
    # Many programs write quotes into TSV as they are. In a CSV that is a mistake, which its reader reports with the line.
    is_read_quoted = is_quoted or delimiter != "\t"
    structure = structure_with(texts, kind=kind, delimiter=delimiter, quoted=is_read_quoted, escaped=is_escaped)
    return replace(structure, fields=names), (1 + len(alike)) / (1 + len(others)) if is_quoted == structure.quoted else 0.0


def are_names(first: Iterable[str]) -> bool:
    """Whether the first row of a table names its columns; pandas leaves out the name of the first one, the numbers of rows."""
    return all(NAME.fullmatch(name) or (number == 0 and not name) for number, name in enumerate(first)) and any(first)


def is_before(delimiter: str, line: str) -> bool:
    """Whether such a line before a table is no row: that of Excel, or a comment, as Anki writes."""
    return bool(EXCEL.match(line)) or (line.startswith("#") and delimiter not in line)


def _first_rows(lines: list[str], delimiter: str) -> tuple[list[list[str]], bool, bool]:
    """The rows at the beginning of a table, whether quotes can be those of fields, and whether others have a backslash."""
    for is_escaped in (False, True):
        rows = list[list[str]]()
        try:
            table = csv_reader(lines, delimiter=delimiter, quoted=True, escaped=is_escaped)
            rows.extend(filter(None, islice(table, ROWS)))
        except csv.Error as error:
            if "unexpected end" not in str(error):  # where a head ends inside a field
                continue
        return rows, True, is_escaped
    return [line.split(delimiter) for line in filter(None, lines[:ROWS])], False, False


def csv_reader(lines: Iterable[str], *, delimiter: str, quoted: bool, escaped: bool) -> Any:
    """A csv.reader of a table whose fields may be in quotes, or never are. A space divides a line once, if it has one."""
    if delimiter == " ":
        halves = (line.strip().split(None, 1) for line in lines)
        lines, delimiter, quoted = ("\t".join([*half, ""][:2]) if half else "" for half in halves), "\t", False
    elif escaped:
        lines = (ESCAPE.sub(lambda one: one[1] * (1 + (one[1] == '"')), line) for line in lines)
    return csv.reader(lines, delimiter=delimiter, strict=quoted, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)


CSV = Kind(name="CSV", suffixes=(".csv",), find=_find, records=reader("table_rows", "rows_in"))
TSV = Kind(name="TSV", suffixes=(".tsv", ".tab"), find=_find, records=reader("table_rows", "rows_in"))
