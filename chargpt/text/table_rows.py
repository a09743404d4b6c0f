"""The records of CSV and TSV."""

import csv
from collections.abc import Iterator

from chargpt.errors import UserError
from chargpt.formatting import plural
from chargpt.text.kind import Record, Text, lines_in
from chargpt.text.tables import csv_reader, is_before

MAX_FIELD = 2**24  # characters in a table; more are a sign of a quote that is never closed
MAX_COLUMNS = 2**20  # fields in a line; more would fill the memory, and are no table
CSV_PROBLEMS = {  # how a message of the csv module begins or ends: what it means here
    "unexpected end of data": "a field in quotes has no closing quote; close it",
    "field larger than field limit": f"a field of more than {MAX_FIELD:,} characters; close its quote, or split it",
    "expected after": "a quote inside a field in quotes; write it twice, as CSV does",
}


def rows_in(text: Text) -> Iterator[Record]:
    """The records of a table: a text by the name of each column. The first row has the names, unless a column that is asked for
    is a number: then all are named by their numbers. Raises UserError."""
    header = list[str]()
    for line, row in _numbered_rows(text):
        if not header:
            names = [name.strip() for name in row]
            header = _header(names, text, line)
            if header == names:
                continue
        if len(row) != len(header) and any(row[len(header) :] or [len(row) < len(header)]):
            count = f"{plural(len(row), 'column')}, but the header has {len(header):,}, divided at {text.structure.delimiter!r}"
            what_to_do = "correct that line; a field that contains the separator or a line end must be in quotes"
            raise UserError(f"{text.label}: line {line:,}: {count}; {what_to_do}")
        yield Record(line, dict(zip(header, row)))


def _numbered_rows(text: Text) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not empty, and the line where each begins. Raises UserError."""
    csv.field_size_limit(MAX_FIELD)
    structure, done = text.structure, 0
    rows = csv_reader(_lines(text), delimiter=structure.delimiter, quoted=structure.quoted, escaped=structure.escaped)
    try:
        for row in rows:
            if row:
                yield done + 1, row
            done = rows.line_num
    except csv.Error as error:
        known = next((what for said, what in CSV_PROBLEMS.items() if said in str(error)), "")
        raise UserError(f"{text.label}: line {done + 1:,}: {known or f'not {structure.kind.name} ({error})'}") from None


def _lines(text: Text) -> Iterator[str]:
    """The lines of a file; those before its table are empty, and noted if they are comments."""
    is_first = True
    for number, line in enumerate(lines_in(text.pieces, text.label), 1):
        is_first = is_first and is_before(text.structure.delimiter, line)
        if is_first and line.startswith("#"):
            text.noted.setdefault("comments before the table, left out", []).append(number)
        yield "\n" if is_first else f"{line}\n"


def _header(names: list[str], text: Text, line: int) -> list[str]:
    """The names of the columns: those in the first row, or their numbers. Raises UserError."""
    if len(names) > MAX_COLUMNS:
        what = f"more than {MAX_COLUMNS:,} columns with {text.structure.delimiter!r} between them"
        raise UserError(f"{text.label}: line {line:,}: {what}; correct the line, or name a file without columns .txt")
    if twice := next((name for name in text.wanted if names.count(name) > 1), None):
        raise UserError(f"{text.label}: {names.count(twice)} columns are named {twice!r}; give each its own name")
    numbers = [f"{number}" for number in range(1, len(names) + 1)]
    return names if {*names}.issuperset(text.wanted) or not {*numbers} & {*text.wanted} else numbers
