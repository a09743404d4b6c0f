"""Prints the tables of docs/lab/ from the rows of docs/lab/results/.

    python tests/benchmarks/tables.py    write every table into its page

A row is one run: a JSON object in a line of a .jsonl file. A page says above each table which rows it shows and how:

    <!-- table experiments.jsonl table=law
    text = {text}
    seen = {seen:,}
    loss, two cores [machine=xeon] = {loss:.3f}
    -->
    (the table)
    <!-- end of table -->

The first line names the file and the values that a row must have. Each further line is a column: its heading, and a format
string that is filled with the row. Rows that agree in the columns without brackets share a line. A column with brackets shows the
runs of that line that have the values in the brackets, separated by commas. A key that a row does not have leaves the cell empty.
"""

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

LAB = Path(__file__).resolve().parents[2] / "docs" / "lab"
BLOCK = re.compile(r"(<!-- table (.+?)\n-->\n)(.*?)(<!-- end of table -->)", re.DOTALL)
COLUMN = re.compile(r"(?P<heading>.*?) ?(?P<brackets>\[(?P<values>.*)\])? = (?P<template>.+)")

Row = dict[str, object]


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    heading: str
    template: str
    # what a row must have for its figures to be in this column; None: the column names the line and does not hold figures
    values: dict[str, str] | None

    def cell(self, rows: list[Row]) -> str:
        """The text for the rows of a line."""
        if self.values is None:
            return filled(self.template, rows[0])
        return ", ".join(text for row in rows if has(row, self.values) and (text := filled(self.template, row)))


def rows_of(path: Path) -> list[Row]:
    """The rows of a .jsonl file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def values_in(text: str) -> dict[str, str]:
    """The values of `key=value key="a value"`."""
    return {key: value for key, _, value in (word.partition("=") for word in shlex.split(text))}


def has(row: Row, values: dict[str, str]) -> bool:
    return all(str(row.get(key)) == value for key, value in values.items())


def filled(template: str, row: Row) -> str:
    """The template with the values of a row; empty if one is missing."""
    try:
        return template.format_map(row)
    except KeyError:
        return ""


def columns_of(lines: list[str]) -> list[Column]:
    """The columns that the lines of a block describe. Raises ValueError for another line."""
    columns = []
    for line in lines:
        found = COLUMN.fullmatch(line)
        if not found:
            raise ValueError(f"{line!r} given; write: heading = {{key}}, or heading [key=value] = {{key}}")
        values = values_in(found["values"]) if found["brackets"] else None
        columns.append(Column(found["heading"], found["template"], values))
    return columns


def table(description: str, results: Path) -> str:
    """The Markdown of a table that a block describes. Raises ValueError if no row fits."""
    first, *lines = description.splitlines()
    name, _, where = first.partition(" ")
    columns, chosen = columns_of(lines), values_in(where)
    groups: dict[object, list[Row]] = {}
    for number, row in enumerate(rows_of(results / name)):
        if has(row, chosen):
            same = tuple(filled(column.template, row) for column in columns if column.values is None)
            has_figures = any(column.values is not None for column in columns)
            groups.setdefault(same if has_figures else number, []).append(row)
    if not groups:
        raise ValueError(f"{name}: no row has {where}")
    head = f"| {' | '.join(column.heading for column in columns)} |\n|{'---|' * len(columns)}\n"
    return head + "".join(f"| {' | '.join(column.cell(rows) for column in columns)} |\n" for rows in groups.values())


def printed(page: str, results: Path = LAB / "results") -> str:
    """A page with each of its tables printed from its rows."""
    return BLOCK.sub(lambda block: block[1] + table(block[2], results) + block[4], page)


def main() -> None:
    for path in sorted(LAB.glob("*.md")):
        old = path.read_text(encoding="utf-8")
        if (new := printed(old)) != old:
            path.write_text(new, encoding="utf-8")
            print(f"{path.name}: written")


if __name__ == "__main__":
    main()
