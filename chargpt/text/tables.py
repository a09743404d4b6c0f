"""CSV and TSV: one document in each record, in a column that the header names."""

import csv
import difflib
import io
from collections.abc import Iterable, Iterator, Sequence

from chargpt.errors import Option, UserError, Words
from chargpt.text.records import decoded, labelled, lines_in
from chargpt.text.structure import MAX_COMPARED, NAME, Structure, csv_reader, named

MAX_FIELD = 2**24  # characters; more are a sign of a quote that is never closed
MAX_COLUMNS = 2**20  # fields in a line; more would fill the memory, and are no table
CSV_PROBLEMS = {  # how a message of the csv module begins or ends: what it means here
    "unexpected end of data": "a field in quotes has no closing quote; close it",
    "field larger than field limit": f"a field of more than {MAX_FIELD:,} characters; close its quote, or split it",
    "expected after": "a quote inside a field in quotes; write it twice, as CSV does",
}


def table_documents(
    pieces: Iterable[bytes | str],
    *,
    field: str,
    structure: Structure,
    label: str,
    labels: Sequence[str] = (),
    setting: str = "data.field",
) -> Iterator[tuple[int, str]]:
    """The line where each record of the table that `pieces` form begins, and the text in its column `field`.

    The first record is the header. Empty lines are skipped. Line ends inside a field become newlines. The columns `labels` come
    before the text, see `labelled`. `label` names the table in errors, and `setting` what `field` was given with. Raises
    UserError.
    """
    csv.field_size_limit(MAX_FIELD)
    rows = csv_reader(_lines(pieces, structure.delimiter, label=label), delimiter=structure.delimiter, quoted=structure.quoted)
    header: list[str] = []
    column, label_columns = 0, list[int]()
    done = 0  # lines before the record
    while True:
        where = f"{label}: line {done + 1:,}"
        try:
            row = next(rows, None)
        except csv.Error as error:
            known = next((what for text, what in CSV_PROBLEMS.items() if text in str(error)), f"not {structure.kind} ({error})")
            raise UserError(f"{where}: {known}") from None
        if row is None:
            return
        line, done = done + 1, rows.line_num
        if not row:
            continue
        if not header:
            header = [name.strip() for name in row]
            column = _column(header, field, label=label, setting=setting)
            label_columns = [_column(header, name, label=label, setting="data.label") for name in labels]
            continue
        if len(row) != len(header) and any(row[len(header) :] or [len(row) < len(header)]):
            what_to_do = "correct that line; a field that contains the separator or a line end must be in quotes"
            count = f"{len(row):,} {'field' if len(row) == 1 else 'fields'}, and the header has {len(header):,}"
            raise UserError(f"{where}: {count} (the separator is {structure.delimiter!r}); {what_to_do}")
        yield line, labelled(row[column], [row[other] for other in label_columns])


def _column(header: list[str], field: str, *, label: str, setting: str) -> int:
    """The number of the column that is named `field`."""
    if header.count(field) == 1:
        return header.index(field)
    if field in header:
        raise UserError(f"{label}: {header.count(field)} columns are named {field!r}; give each of them its own name")
    close = difflib.get_close_matches(field, header[:MAX_COMPARED], n=1)
    what_to_do: list[Words] = [f"name the one with the text in {setting}"]
    if close:
        what_to_do = ["did you mean ", Option(setting, close[0]), "?"]
    if "," in field and set(field.split(",")) <= set(header):
        what_to_do = ["give one alone, for example ", Option(setting, field.partition(",")[0])]
    elif not close and not all(map(NAME.fullmatch, header)):
        what_to_do.append(", or add a first line with the names of the columns if there is none")
    raise UserError(f"{label}: no column {field!r}, its columns are: {named(header)}; ", *what_to_do)


def _lines(pieces: Iterable[bytes | str], delimiter: str, *, label: str) -> Iterator[str]:
    """The lines of a table, each with its end. Raises UserError."""
    for number, line in enumerate(lines_in(_translated(decoded(pieces)), label), 1):
        if len(line) > MAX_COLUMNS and line.count(delimiter) > MAX_COLUMNS:
            what = f"more than {MAX_COLUMNS:,} fields (the separator is {delimiter!r}); correct that line"
            raise UserError(f"{label}: line {number:,}: {what}")
        yield f"{line}\n"


def _translated(pieces: Iterable[str]) -> Iterator[str]:
    """The same text, with a newline for each line end, whatever it was."""
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    yield from map(newlines.decode, pieces)
    yield newlines.decode("", final=True)
