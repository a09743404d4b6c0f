"""Tables: CSV and TSV, by the name of a file or by its first lines, and their records."""

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from chargpt.errors import UserError
from chargpt.terminal import plural
from chargpt.text.kind import Head, Kind, Record, Structure, Text, lines_in, longest

ROWS = 200  # rows of the head that are compared
SAME_WIDTH = 0.9  # share of the rows of a table that are as wide as the first; the others have a mistake
SURE_ROWS = 10  # rows of equal width in a file whose name does not say that it is a table
NAME = re.compile(r"[^\W\d][\w .()/%#-]{0,39}(?<!\.)")  # a column's name: it begins with a letter, and is not a sentence
MAX_FIELD = 2**24  # characters in a table; more are a sign of a quote that is never closed
MAX_COLUMNS = 2**20  # fields in a line; more would fill the memory, and are no table
CSV_PROBLEMS = {  # how a message of the csv module begins or ends: what it means here
    "unexpected end of data": "a field in quotes has no closing quote; close it",
    "field larger than field limit": f"a field of more than {MAX_FIELD:,} characters; close its quote, or split it",
    "expected after": "a quote inside a field in quotes; write it twice, as CSV does",
}


@dataclass(frozen=True)
class _Guess:
    """How a file looks as a table whose fields one delimiter divides."""

    structure: Structure
    same_width: float  # the share of its rows that are as wide as the first

    @property
    def has_names(self) -> bool:
        """Whether the fields of its first row are names of columns."""
        names = self.structure.fields
        return all(map(NAME.fullmatch, names)) and len({*names}) == len(names) > 2


def _named(kind: Kind, head: Head) -> Structure | None:
    """The table in a file whose name says that it is one; the delimiter that makes most rows as wide as the first."""
    delimiters = ",;\t|" if kind is CSV else "\t"
    return _best(head, [_guess(kind, head, one) for one in delimiters]).structure if head.suffix in kind.suffixes else None


def _named_or_sure(kind: Kind, head: Head) -> Structure | None:
    """The table in a file. If its name says nothing, it is one if it has the column that is asked for, which may be a number,
    or if all its lines are as those of a table."""
    if (found := _named(kind, head)) or head.start[:1] in ("{", "["):
        return found
    is_number, first = head.field.isdecimal(), head.text.partition("\n")[0]
    # A number may be that of a column of two, the first word of a line and the rest.
    delimiters = "\t,;" + " " * (is_number and " " in first.strip())
    best = _best(head, [_guess(CSV if one in ",;" else TSV, head, one) for one in delimiters])
    if head.field and head.field in best.structure.fields:
        return best.structure
    lines = [line for line in head.text.split("\n")[: ROWS + 1] if line.strip()]
    are_alike = best.same_width == 1 and len(lines) > SURE_ROWS and not any(line[0].isspace() for line in lines)
    are_tabs = best.structure.kind is TSV and len(best.structure.fields) > 1  # with or without a header: pairs of sentences
    is_table = best.same_width > SAME_WIDTH if is_number else are_alike and (are_tabs or best.has_names)
    return best.structure if is_table else None


def _best(head: Head, guesses: list[_Guess]) -> _Guess:
    """The guess with the column that is asked for, or else whose rows fit together, not by spaces if any other one does."""

    def merit(guess: _Guess) -> tuple[bool, bool, bool, float]:
        has_field = head.field in guess.structure.fields
        return has_field, guess.same_width > SAME_WIDTH, guess.structure.delimiter != " ", guess.same_width

    return max([guess for guess in guesses if len(guess.structure.fields) > 1] or guesses, key=merit)


def _guess(kind: Kind, head: Head, delimiter: str) -> _Guess:
    """The table in `head` if `delimiter` divides its fields."""
    lines, rows = re.split("\r\n|\r|\n", head.text), list[list[str]]()
    is_quoted = True
    try:
        for row in islice(csv_reader(lines, delimiter=delimiter, quoted=True), ROWS):
            rows.append(row)
    except csv.Error as error:
        is_quoted = "unexpected end" in str(error)  # the head ends inside a field
        if not is_quoted:
            rows = [line.split(delimiter) for line in filter(None, lines[:ROWS])]
    rows = [row for row in rows if row]
    rows = rows[:-1] or rows or [[]]
    names = tuple(name.strip() for name in rows[0])
    alike = [row for row in rows if len(row) == len(names)]
    # Many programs write quotes into TSV as they are. In a CSV that is a mistake, which its reader reports with the line.
    quoted = is_quoted or delimiter != "\t"
    structure = Structure(kind=kind, delimiter=delimiter, quoted=quoted, fields=names)
    structure = replace(structure, longest=longest(dict(zip(names, zip(*alike[1:])))))
    return _Guess(structure, len(alike) / len(rows) if is_quoted == quoted else 0.0)


def csv_reader(lines: Iterable[str], *, delimiter: str, quoted: bool) -> Any:
    """A csv.reader of a table whose fields may be in quotes, or never are. A space divides a line once, if it has one."""
    if delimiter == " ":
        halves = (line.strip().split(None, 1) for line in lines)
        lines, delimiter, quoted = ("\t".join([*half, ""][:2]) if half else "" for half in halves), "\t", False
    return csv.reader(lines, delimiter=delimiter, strict=quoted, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)


def rows_in(text: Text) -> Iterator[Record]:
    """The records of a table: a text by the name of each column. The first row has the names, unless a column that is asked for
    is a number: then all are named by their numbers. Raises UserError."""
    csv.field_size_limit(MAX_FIELD)
    label, structure, header, done = text.label, text.structure, list[str](), 0  # lines before the record
    lines = (f"{line}\n" for line in lines_in(text.pieces, label))
    rows = csv_reader(lines, delimiter=structure.delimiter, quoted=structure.quoted)
    try:
        for row in rows:
            line, done = done + 1, rows.line_num
            if not row:
                continue
            if not header:
                names = [name.strip() for name in row]
                header = _header(names, text, line)
                if header == names:
                    continue
            if len(row) != len(header) and any(row[len(header) :] or [len(row) < len(header)]):
                count = f"{plural(len(row), 'column')}, but the header has {len(header):,}, divided at {structure.delimiter!r}"
                what_to_do = "correct that line; a field that contains the separator or a line end must be in quotes"
                raise UserError(f"{label}: line {line:,}: {count}; {what_to_do}")
            yield Record(line, dict(zip(header, row)))
    except csv.Error as error:
        known = next((what for said, what in CSV_PROBLEMS.items() if said in str(error)), "")
        raise UserError(f"{label}: line {done + 1:,}: {known or f'not {structure.kind.name} ({error})'}") from None


def _header(names: list[str], text: Text, line: int) -> list[str]:
    """The names of the columns: those in the first row, or their numbers. Raises UserError."""
    if len(names) > MAX_COLUMNS:
        what = f"more than {MAX_COLUMNS:,} columns with {text.structure.delimiter!r} between them"
        raise UserError(f"{text.label}: line {line:,}: {what}; correct the line, or name a file without columns .txt")
    if twice := next((name for name in text.wanted if names.count(name) > 1), None):
        raise UserError(f"{text.label}: {names.count(twice)} columns are named {twice!r}; give each its own name")
    numbers = [f"{number}" for number in range(1, len(names) + 1)]
    return names if {*names}.issuperset(text.wanted) or not {*numbers} & {*text.wanted} else numbers


CSV = Kind(name="CSV", suffixes=(".csv",), find=_named_or_sure, records=rows_in)
TSV = Kind(name="TSV", suffixes=(".tsv", ".tab"), find=_named, records=rows_in)
