"""CSV and TSV: the column that was named, as the csv module reads it, and errors with the line."""

import csv
import gzip
import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from text_helpers import text_of

from chargpt.terminal import UserError
from chargpt.text import tables
from chargpt.text.structure import Structure
from chargpt.text.tables import table_documents

BODIES = ["one\nline", "two, with a comma", 'and "quotes"', "é海" * 10]
TEXT = "\n".join(BODIES)


def table(bodies: list[str], **dialect: object) -> str:
    file = io.StringIO(newline="")
    csv.writer(file, **dialect).writerows([["id", "body"], *enumerate(bodies)])
    return file.getvalue()


FILES = {
    "CSV": ("a.csv", table(BODIES).encode()),
    "a byte-order mark": ("a.csv", table(BODIES).encode("utf-8-sig")),
    "semicolons": ("a.csv", table(BODIES, delimiter=";").encode()),
    "tabs in a .csv": ("a.csv", table(BODIES, delimiter="\t").encode()),
    "compressed": ("a.csv.gz", gzip.compress(table(BODIES).encode())),
    "TSV": ("a.tsv", table(BODIES, delimiter="\t").encode()),
    "UTF-16, as Excel writes it": ("a.tsv", table(BODIES, delimiter="\t").encode("utf-16")),
    "empty lines": ("a.csv", table(BODIES).replace("\r\n", "\n\n").replace("one\n\n", "one\n").encode()),
    "line ends of old Macs": (
        "a.csv",
        table(BODIES, lineterminator="\r", quoting=csv.QUOTE_ALL).replace("one\n", "one\r").encode(),
    ),
    "empty cells": ("a.csv", table(["", *BODIES, ""]).encode()),
    "more empty cells than columns": ("a.csv", table(BODIES).replace("\r\n", ",,\r\n").encode()),
    "a name that says nothing": ("a.txt", table(BODIES).encode()),
}


@pytest.mark.parametrize("case", FILES)
def test_a_table_is_read_by_its_column(case, load, tmp_path):
    name, content = FILES[case]
    (tmp_path / name).write_bytes(content)
    corpus = load(tmp_path / name, field="body", format="fields")
    assert text_of(corpus) == TEXT and any("'body' of" in note for note in corpus.notes)
    assert text_of(load(tmp_path / name, field="body", format="fields", vocabulary="bytes")) == TEXT


def test_records_are_split_as_documents(load, tmp_path):
    (tmp_path / "a.csv").write_text(table([f"document {n:03} of the sea" for n in range(100)]))
    corpus = load(tmp_path / "a.csv", field="body", format="fields", split="document", val_fraction=0.1)
    numbers = {int(line[9:12]) for line in corpus.tokenizer.decode(corpus.val).split("\n")}
    assert len(numbers) == 10 and {number // 50 for number in numbers} == {0, 1}


def test_quotes_that_a_program_wrote_as_they_are_into_tsv_are_text(load, tmp_path):
    (tmp_path / "a.tsv").write_text("id\tbody\n" + '1\t"Hello," he said.\n' * 3)
    assert text_of(load(tmp_path / "a.tsv", field="body", format="fields")) == "\n".join(['"Hello," he said.'] * 3)


def test_without_a_field_a_table_is_read_as_it_is(load, tmp_path):
    """Runs that began before tables could be read had a data.field too, which did nothing."""
    (tmp_path / "a.csv").write_text(table(BODIES), newline="")
    (tmp_path / "a.txt").write_text(table(BODIES), newline="")
    corpus = load(tmp_path / "a.csv", field="body", newlines="keep")
    assert text_of(corpus) == table(BODIES)
    assert corpus.fingerprint == load(tmp_path / "a.txt", field="body", newlines="keep").fingerprint


WRONG = {
    "no such column": (
        "id,bodies\n1,a\n",
        "a.csv: no column 'body', its columns are: id, bodies; did you mean data.field=bodies",
    ),
    "nothing like it": ("id,x\n1,a\n", "no column 'body', its columns are: id, x; name the one with the text in data.field"),
    "no header": ("1,the sea.\n2,a stone\n", "no column 'body', .*, or add a first line with the names of the columns"),
    "a column twice": ("body,body\n1,a\n", "a.csv: 2 columns are named 'body'"),
    "an open quote": ('id,body\n1,a\n2,"b\n3,c\n', "a.csv: line 3: a field in quotes has no closing quote; close it"),
    "a quote inside quotes": ('id,body\n1,"a "b" c"\n', "a.csv: line 2: a quote inside a field in quotes; write it twice"),
    "too many fields": ("id,body\n1,a\n2,b, c\n", "a.csv: line 3: 3 fields, and the header has 2 .*; correct that line"),
    "too few fields": ("id,body\n1,a\nb\n", "a.csv: line 3: 1 field, and the header has 2"),
    "after a field of two lines": ('id,body\n1,"a\nb"\n2\n', "a.csv: line 4: 1 field"),
    "a huge field": ('id,body\n1,"' + "a" * 3000, "a.csv: line 2: a field of more than 2,000 characters"),
    "a header alone": ("id,body\n", "a.csv: empty; give"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_table_that_cannot_be_read_is_one_line_that_says_where(case, load, tmp_path, monkeypatch):
    content, message = WRONG[case]
    monkeypatch.setattr(tables, "MAX_FIELD", 2000)
    monkeypatch.setattr(
        tables,
        "CSV_PROBLEMS",
        {**tables.CSV_PROBLEMS, "field larger than field limit": "a field of more than 2,000 characters"},
    )
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(UserError, match=message) as error:
        load(tmp_path / "a.csv", field="body", format="fields")
    assert "\n" not in str(error.value)


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=8)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(CELLS, CELLS), min_size=1), st.integers(1, 7), st.sampled_from([",", ";", "\t"]))
def test_what_the_csv_module_wrote_comes_back_however_it_is_cut(rows, size, delimiter):
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter).writerows([("id", "body"), *rows])
    content = file.getvalue()
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    structure = Structure(kind="CSV", delimiter=delimiter)
    assert [text for _, text in table_documents(pieces, field="body", structure=structure, label="a")] == [b for _, b in rows]
