"""JSON, JSON lines and tables: the text in the field that was named, and errors with the line."""

import csv
import gzip
import io
import json
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_helpers import text_of, write

from chargpt.config import DataConfig
from chargpt.errors import UserError
from chargpt.text import formats, kind, records, table_rows
from chargpt.text.formats import recognise
from chargpt.text.json_files import JSON, JSON_LINES
from chargpt.text.kind import Head, Structure
from chargpt.text.records import documents_in
from chargpt.text.source import Source
from chargpt.text.tables import CSV

BODIES = ["one\nline", "two, with a comma", 'and "quotes"', "é海" * 10]


def documents(pieces: list[str], structure: Structure, **settings: str) -> list[tuple[int, str]]:
    found = documents_in(Source(label="a"), structure, DataConfig(**settings), pieces=pieces, noted={})
    return [(origin.line, ", ".join([*label, *text])) for label, text, origin in found]


def table(bodies: list[str], **dialect: object) -> str:
    file = io.StringIO(newline="")
    csv.writer(file, **dialect).writerows([["id", "body"], *enumerate(bodies)])
    return file.getvalue()


CELLS = st.text(st.one_of(st.characters(exclude_categories=["Cs", "Cc"]), st.sampled_from('\n,;\t"')), max_size=8)
LATER_BYTES = "".join(map(chr, range(0x80, 0xC0)))  # of a character in UTF-8, which are put together
ANY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=f"\r{LATER_BYTES}"), max_size=8)
WAYS = st.sampled_from([("a.csv", ","), ("a.csv", ";"), ("a.csv", "\t"), ("a.tsv", "\t"), ("a.tab", "\t"), ("a.txt", ",")])
ENDS, ENCODINGS = st.sampled_from(["\r\n", "\n", "\r"]), st.sampled_from(["utf-8", "utf-8-sig", "utf-16"])


@given(st.lists(CELLS, min_size=2), WAYS, ENDS, ENCODINGS, st.booleans(), st.sampled_from(["characters", "bytes"]))
def test_a_table_is_read_by_its_column_however_it_is_written(load, tmp_path, cells, way, end, encoding, is_packed, vocabulary):
    """As Excel writes it, for example, or an old Mac; with empty lines and cells."""
    (name, delimiter), bodies = way, [f"{cell}." for cell in cells]
    rows = table(["", *bodies, ""], delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL if end == "\r" else 0)
    content = rows.replace(end, 2 * end, 1).encode(encoding)
    path = write(tmp_path / f"{name}{'.gz' * is_packed}", gzip.compress(content) if is_packed else content)
    corpus = load(path, field="body", format="fields", vocabulary=vocabulary, block_size=1, val_fraction=0)
    assert text_of(corpus) == "\n".join(bodies) and any("'body' of" in note for note in corpus.notes)
    if "\n" not in "".join(cells):
        path = write(tmp_path / "b.csv", table(bodies).replace("\r\n", ",,\r\n"))
        assert text_of(load(path, field="body", format="fields", block_size=1, val_fraction=0)) == "\n".join(bodies), (
            "more empty cells"
        )


COMMENTS = st.lists(st.sampled_from(["# exported by a program", "#html:true", "#"]), max_size=3)


@given(st.lists(st.text('ab,;\t"\\ \n', max_size=8)), COMMENTS, st.sampled_from(",;\t"), st.booleans())
def test_comments_before_a_table_are_no_rows_and_a_quote_in_a_field_may_have_a_backslash(
    load, tmp_path, cells, above, comma, is_escaped
):
    bodies = [f'"sea" {cell}.' for cell in cells] + ["the sea"]
    dialect = {"escapechar": "\\", "doublequote": False} if is_escaped else {}
    content = "".join(f"{line}\n" for line in above) + table(bodies, delimiter=comma, quoting=csv.QUOTE_ALL, **dialect)
    corpus = load(write(tmp_path / "a.csv", content), field="body", format="fields", block_size=1, val_fraction=0)
    assert text_of(corpus) == "\n".join(bodies)
    assert (f"left out: {len(above)}," in " ".join(map(str, corpus.notes))) == bool(above)


def test_quotes_are_text_in_tsv_and_without_a_field_a_table_is_read_as_it_is(load, tmp_path):
    """Many programs write them so. Runs that began before tables could be read had a data.field too, which did nothing."""
    path = write(tmp_path / "a.tsv", "id\tbody\n" + '1\t"Hello," he said.\n' * 3)
    assert text_of(load(path, field="body", format="fields")) == "\n".join(['"Hello," he said.'] * 3)
    files = (write(tmp_path / name, table(BODIES)) for name in ("a.csv", "a.txt"))
    corpus, plain = (load(file, field="body", newlines="keep") for file in files)
    assert text_of(corpus) == table(BODIES) and corpus.fingerprint == plain.fingerprint


WRONG = {
    "no such column": ("id,bodies\n1,a\n", "line 2: no field 'body', its .* are: id, bodies; did you mean data.field=bodies"),
    "nothing like it": ("id,x\n1,a\n", "its fields are: id, x; set data.field to a field with text, for example data.field=x"),
    "no header": ("1,the sea.\n2,a stone\n", "no field 'body', .*, or its number, such as data.field=1"),
    "a column twice": ("body,body\n1,a\n", "a.csv: 2 columns are named 'body'"),
    "an open quote": ('id,body\n1,a\n2,"b\n3,c\n', "a.csv: line 3: a field in quotes has no closing quote; close it"),
    "a quote inside quotes": ('id,body\n1,"a "b" c"\n', "a.csv: line 2: a quote inside a field in quotes; write it twice"),
    "too many fields": ("id,body\n1,a\n2,b, c\n", "a.csv: line 3: 3 columns, but the header has 2, .*; correct that line"),
    "after a field of two lines": ('id,body\n1,"a\nb"\n2\n', "a.csv: line 4: 1 column"),
    "a huge field": ('id,body\n1,"' + "a" * 3000, "a.csv: line 2: a field of more than .* characters; close its quote"),
    "a huge header": ("body" + ",a" * 3000, "a.csv: line 1: more than 2,000 columns with .*; correct the line"),
    "a header alone": ("id,body\n", "a.csv: empty; give"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_table_that_cannot_be_read_is_one_line_that_says_where(case, load, tmp_path, monkeypatch):
    content, message = WRONG[case]
    monkeypatch.setattr(table_rows, "MAX_FIELD", 2000)
    monkeypatch.setattr(table_rows, "MAX_COLUMNS", 2000)
    with pytest.raises(UserError, match=f"^.*{message}.*$"):
        load(write(tmp_path / "a.csv", content), field="body", format="fields")


@given(st.lists(ANY, min_size=1), st.integers(1, 7), st.sampled_from([",", ";", "\t"]))
def test_what_the_csv_module_wrote_comes_back_however_it_is_cut(rows, size, delimiter):
    content = table(rows, delimiter=delimiter)
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    structure = Structure(kind=CSV, delimiter=delimiter)
    assert [text for _, text in documents(pieces, structure, field="body")] == rows


def test_json_lines_take_the_field_named(load, tmp_path):
    some = [{"body": "one\nline\u2028"}, {"body": "two", "id": 5}, {"body": "é" * 20}]
    path = tmp_path / "all.jsonl.gz"
    path.write_bytes(gzip.compress("\n\n".join(json.dumps(record) for record in some).encode()))
    assert text_of(load(path, field="body")) == "one\nline\u2028\ntwo\n" + "é" * 20
    texts = ["a" * 3_000_000, "海" * 1_000_000, "b" * 10]  # longer than a chunk
    (tmp_path / "all.ndjson").write_text("\n".join(json.dumps({"text": text}, ensure_ascii=False) for text in texts))
    assert text_of(load(tmp_path / "all.ndjson")) == "\n".join(texts)


LISTS = {
    "a list": json.dumps([{"body": "the sea"}, {"body": "é海\nstone", "n": 1.5}]),
    "a list on many lines": json.dumps([{"body": "the sea"}, {"body": "é海\nstone"}], indent=2, ensure_ascii=False),
    "a list in an object": json.dumps({"n": 2, "poems": [{"body": "the sea"}, {"body": "é海\nstone"}]}),
    "parts": json.dumps([{"body": ["the ", {"type": "link", "body": 1, "text": "sea"}]}, {"body": ["é海", "stone"]}]),
    "lines with their ends": json.dumps([{"body": "the sea"}, {"body": ["é海\n", "stone"]}]),
    "without text": json.dumps([{"n": 1}, {"body": "the sea"}, {"body": None}, {"body": []}, {"body": "é海\nstone"}]),
    "objects on lines": '{"body": "the sea"}\n{"body": "é海\\nstone"}\n',
}


@pytest.mark.parametrize("case", LISTS)
@pytest.mark.parametrize("size", [1, 1000])
def test_a_json_list_is_read_by_the_field_named_however_it_is_cut(case, size):
    pieces = [LISTS[case][at : at + size] for at in range(0, len(LISTS[case]), size)]
    found = documents(pieces, Structure(kind=JSON), field="body")
    assert [text for _, text in found if text] == ["the sea", "é海\nstone"]
    assert case != "a list on many lines" or [line for line, _ in found] == [2, 5]


def test_a_field_in_a_field_is_named_by_its_path(load, tmp_path):
    for name, content, text in (
        ("a.jsonl", '{"data": {"body": "the sea"}}\n{"data": {"body": "a stone", "n": 1}}\n', "the sea\na stone"),
        ("c.jsonl", '{"data": {\n "body": "the sea"\n}}\n{"data":\n{"body": "a stone"}}\n', "the sea\na stone"),
        ("b.jsonl", '{"data.body": "the sea and the stone", "data": {"body": "not this"}}\n', "the sea and the stone"),
        ("a.json", '{"poems": [{"data": {"body": "the sea"}}, {"data": {"body": "a stone"}}]}', "the sea\na stone"),
    ):
        assert text_of(load(write(tmp_path / name, content), field="data.body", format="fields")) == text


# Files of JSON, the field, and the error.
WRONG_JSON = [
    ("a.jsonl", '{"body": "fine"}\n{', "body", "line 2: not JSON"),
    ("a.jsonl", '{"body": "fine"}\n[1]', "body", "line 2: not a JSON object"),
    ("a.jsonl", '{"body": "fine"}\n{"body": "\\ud800"}', "body", "line 2: half of a character"),
    ("a.jsonl", '{"body": "fine"}\n' + "a" * 3_000, "body", "a.jsonl: a line is longer than 2,000 characters; split it"),
    ("a.jsonl", '{"id": "a"}\n\n{"id": 5}', "id", "line 3: field 'id' is a number"),
    (
        "a.jsonl",
        '{"body": "x"}',
        "text",
        "line 1: no field 'text', its fields are: body; set data.field to .*, for example data.field=body",
    ),
    ("a.json", '[{"body": "fine"},\n{"body": "a"', "body", "a.json: line 2: not JSON"),
    ("a.json", '[{"body": "fine"},\n 5]', "body", "a.json: line 2: not a JSON object"),
    ("a.json", '{"poems": {"body": "a"}}', "body", "no field 'body', .*: poems.body; did you mean data.field=poems.body"),
    ("a.json", '[{"bodies": "a"}]', "body", "did you mean data.field=bodies?"),
    ("a.json", '[{"n": "1", "verse": "the sea"}]', "body", "for example data.field=verse"),
    ("a.json", '{"a": [{"body": "x"}], "b": [{"body": "y"}]}', "body", "fields are: a.body, b.body; .* mean data.field=a.body"),
    ("a.json", "[" * 10**5, "body", "a.json: empty; give"),
    ("a.json", '[{"body": ' + "[" * 10**5, "body", "a.json: line 1: not JSON"),
    ("a.json", '[\n {"body": "fine"},\n {\n  "body": "a",\n  "n" 5\n }\n]', "body", "a.json: line 5: not JSON"),
    ("a.jsonl", '{"data": {"body": "sea"}}', "data", "field 'data' is an object; .* for example data.field=data.body"),
    ("a.jsonl", '{"data": {"body": "sea"}}', "data.body.n", "no field 'data.body.n'"),
    ("a.jsonl", '{"data": {}}', "data", "field 'data' is an object; set data.field to a field with text$"),
    ("a.jsonl", '{"data": [{"body": 5}, {"n": "x"}]}', "data.body", "field 'data.body' is a number; set data"),
    ("a.jsonl", '{"data": [{"text": "x"}, {"n": "x"}]}', "data.bodies", "no field 'data.bodies', .* mean data.field=data.text"),
    ("a.jsonl", '{"chat": [{"who": "b", "said": "the sea"}]}', "chat", "no text in the field 'chat', .* data.field=chat.said"),
    ("a.jsonl", '{"ids": [5, 8, 1]}', "ids", "no text in the field 'ids', its fields are: ids; set data"),
    ("a.jsonl", '{"a":' * 300 + '"deep"' + "}" * 300, "text", "no field 'text'"),
]


@pytest.mark.parametrize("name, content, field, message", WRONG_JSON, ids=range(len(WRONG_JSON)))
def test_json_that_cannot_be_read_is_one_line_that_says_where_and_what_to_do(
    name, content, field, message, load, tmp_path, monkeypatch
):
    monkeypatch.setattr(kind, "MAX_LINE", 2_000)
    with pytest.raises(UserError, match=f"^.*{message}.*$".replace("$.*$", "$")):
        load(write(tmp_path / name, content), field=field, format="fields")


CHAT = {
    "name": "us",
    "list": [
        {"id": 1, "messages": [{"from": "ann", "text": "the sea"}, {"from": "ben", "text": ""}]},
        {"id": 2, "messages": [{"from": "ann", "text": ["and ", {"type": "b", "text": "the {stone}"}]}, {"from": "ben"}]},
    ],
}


def test_a_path_leads_through_lists_to_the_records_whose_lines_are_told(load, tmp_path):
    content = json.dumps(CHAT, indent=1)
    pieces = [content[at : at + 7] for at in range(0, len(content), 7)]
    settings = {"items": "list.messages.text", "field": "list.messages.text", "label": "list.messages.from"}
    found = documents(pieces, Structure(kind=JSON), **settings)
    assert [text for _, text in found] == ["ann, the sea", "ben, ", "ann, and the {stone}", "ben, "]
    lines = content.split("\n")
    assert [lines[line - 1].strip() + lines[line].strip()[:7] for line, _ in found] == ['{"from":'] * 4
    corpus = load(write(tmp_path / "a.json", content), field="list.messages.text", format="fields")
    assert text_of(corpus) == "the sea\nand the {stone}" and "records without text skipped: 2" in corpus.notes


FORMS = {  # of the same records: the prefix of their fields, and the value
    "by columns": lambda rows: ("", {name: {str(n): row[name] for n, row in enumerate(rows)} for name in rows[0]}),
    "by rows": lambda rows: ("", {str(n): row for n, row in enumerate(rows)}),
    "by ids": lambda rows: ("", {f"{n:x}-{n * 7919 % 101:x}": row for n, row in enumerate(rows)}),
    "split": lambda rows: (
        "",
        {"columns": [*rows[0]], "index": [*range(len(rows))], "data": [[*row.values()] for row in rows]},
    ),
    "a table": lambda rows: ("data.", {"schema": {"fields": [{"name": name} for name in rows[0]]}, "data": rows}),
    "ChatGPT": lambda rows: (
        "mapping.message.",
        [
            {"mapping": {f"{n}{m}": {"id": m, "message": one} for m, one in zip("abc", [None, row, None])}}
            for n, row in enumerate(rows)
        ],
    ),
}


@given(
    st.sampled_from(sorted(FORMS)), st.lists(ANY.map("the {} sea".format), min_size=3, max_size=30), st.sampled_from([None, 1])
)
def test_records_are_found_in_whatever_form_a_program_writes_a_table(form, texts, indent):
    rows = [{"n": n, "who": "Ada Bo".split()[n * n % 3 % 2], "text": text} for n, text in enumerate(texts)]
    prefix, value = FORMS[form](rows)
    content = json.dumps(value, indent=indent)
    found = recognise(Head(suffix=".json", text=content))
    assert found.best == f"{prefix}text" and f"{prefix}who" in found.fields and found.kind is JSON
    read = documents([content], found, field=found.best, label=f"{prefix}who", items=found.best)
    assert [text for _, text in read if text != ", "] == [f"{row['who']}, {row['text']}" for row in rows]
    assert documents([content], found, field=found.best, where=f"{prefix}n={len(rows) // 2}")[0][1] == texts[len(rows) // 2]


ROWS = {  # of lists without names: the end of a name, the prefix of their numbers, and the content
    "a list": (".json", "", lambda rows, indent: json.dumps(rows, indent=indent)),
    "lines": (".jsonl", "", lambda rows, _: "\n".join(map(json.dumps, rows))),
    "in an object": (".json", "values.", lambda rows, indent: json.dumps({"range": "A1:C9", "values": rows}, indent=indent)),
}


@given(
    st.sampled_from([*ROWS]), st.integers(0, 3), st.lists(ANY.map("the {} sea".format), min_size=2), st.sampled_from([None, 1])
)
def test_rows_without_names_are_read_by_the_number_of_a_value(load, tmp_path, form, before, texts, indent):
    """As the columns of a table without a header; and a list of texts by the number 1."""
    suffix, prefix, written = ROWS[form]
    rows = [[n, None, "x"][:before] + [text] for n, text in enumerate(texts)]
    for content, number in ((written(rows, indent), before + 1), (json.dumps(texts, indent=indent), 1))[
        : 1 + (form == "a list")
    ]:
        field, found = f"{prefix}{number}", recognise(Head(suffix=suffix, text=content))
        assert found.best == field and [text for _, text in documents([content], found, field=field)] == texts
    with pytest.raises(UserError, match=f"data.field={prefix}{before + 1}|for example data.field"):
        load(write(tmp_path / f"a{suffix}", written(rows, indent)), field="text", format="fields")


@given(st.lists(ANY, min_size=20, max_size=30), st.sampled_from([None, 1]), st.sampled_from(["poem ", ""]))
def test_an_object_with_a_text_under_each_of_many_names_is_a_list_of_texts(texts, indent, name):
    texts = [f"a stone, {text} and {n}" for n, text in enumerate(texts)]
    content = json.dumps({f"{name}{n}": text for n, text in enumerate(texts)}, indent=indent)
    found = recognise(Head(suffix=".json", text=content))
    read = documents([content], found, field=found.best, label="1", items=found.best)
    assert [text for _, text in read] == [f"{name}{n}, {text}" for n, text in enumerate(texts)]
    assert not name or documents([content], found, field="poem 3")[0][1] == texts[3]


@given(st.sampled_from([*FORMS, "by lists", "in a table"]), st.integers(9, 30))
def test_the_field_with_the_text_is_advised_also_where_the_first_one_is_longer_than_a_head(tmp_path, form, count):
    rows = [{"link": f"https://example.org/{n:0350}", "text": f"the sea is {n} miles away"} for n in range(count)]
    csv.writer(table := io.StringIO()).writerows([[*rows[0]], *(row.values() for row in rows)])
    forms = {**FORMS, "by lists": lambda rows: ("", {name: [row[name] for row in rows] for name in rows[0]})}
    prefix, value = forms[form](rows) if form in forms else ("", None)
    path = write(tmp_path / f"a.{'json' if form in forms else 'csv'}", json.dumps(value) if value else table.getvalue())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "HEAD", 700)
        (said,) = formats.warnings_about([Source(label="a", path=path)], DataConfig())
    assert f"data.field={prefix}text" in str(said)


def test_a_list_is_recognised_by_its_beginning(load, tmp_path):
    rows = [{"n": n, "text": f"the sea, {n}"} for n in range(9000)]
    for form in ("split", "by rows"):
        assert recognise(Head(text=json.dumps(FORMS[form](rows)[1])[:30000])).fields == ("n", "text")


@given(st.sampled_from(["tweets", "tweet", "note_tweet"]), st.lists(ANY, min_size=6), st.sampled_from([None, 2]), st.booleans())
def test_an_archive_of_twitter_is_json_in_a_script(name, texts, indent, has_end):
    """Those who are mentioned are no authors."""
    texts = [f"the {text} sea {n}" for n, text in enumerate(texts)]
    mentioned = [[{"name": "Ada Bo Cy".split()[n % 3], "screen_name": "adabocy"[n % 3 :]}] for n in range(len(texts))]
    tweets = [{"tweet": {"mentions": names, "full_text": text}} for names, text in zip(mentioned, texts)]
    content = f"window.YTD.{name}.part0 = {json.dumps(tweets, indent=indent)}{';' * has_end}"
    found = recognise(Head(suffix=".js", text=content))
    assert (found.kind, found.best, found.author) == (JSON, "tweet.full_text", "")
    read = documents([*content], found, field=found.best)
    lines = content.split("\n")
    assert [text for _, text in read] == texts and all("{" in lines[line - 1] for line, _ in read)


def with_halves(text: str) -> str:
    """A text as some programs write it into XML, each character beyond U+FFFF as two."""
    units = ((ord(one) >> 10) + 0xD7C0 for one in text if ord(one) > 0xFFFF)
    return "".join(f"&#{next(units)};&#{(ord(one) & 0x3FF) + 0xDC00};" if ord(one) > 0xFFFF else one for one in text)


@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]) | st.sampled_from("<>&\"'\n😀")), min_size=3),
    *(st.booleans() for _ in range(4)),
)
def test_attributes_of_xml_are_fields_if_there_is_more_text_in_them(texts, is_one_line, has_halves, has_text, is_titled):
    texts, end = [f"the {text} sea {n}" for n, text in enumerate(texts)], "" if is_one_line else "\n"
    written = [quoteattr(text, {"\n": "&#10;"}) for text in texts]
    rows = [f'<row Id="{n}" Body={with_halves(one) if has_halves else one}/>{end}' for n, one in enumerate(written)]
    other = "the sea " * (len("".join(rows)) if has_text else is_titled)
    content = f"<?xml version='1.0'?>\n<!--The posts-->\n<posts n='3'>{end}{''.join(rows)}<p>{other}</p></posts>"
    found = recognise(Head(suffix=".xml", text=content))
    assert found.fields == (() if has_text else ("Id", "Body")) and (has_text or found.best == "Body")
    if not has_text:
        read = documents([*content], found, field="Body")
        assert [text for _, text in read] == texts
        assert [line for line, _ in read] == [3 + (n + 1) * (not is_one_line) for n in range(len(texts))]


def test_a_field_that_no_record_has_is_an_error_at_the_end_or_after_many(monkeypatch):
    monkeypatch.setattr(records, "MAX_WITHOUT", 3)
    lines = [json.dumps({"n": "x"})] * 3 + ["not read"]
    for pieces in (lines, lines[:2]):
        with pytest.raises(
            UserError, match="a: line 1: no field 'text', its fields are: n; set data.field to a field with text"
        ):
            documents(["\n".join(pieces)], Structure(kind=JSON_LINES))


def test_excels_line_with_the_separator_is_no_record(tmp_path, load):
    for separator in ";,|":
        table = f"sep={separator}\r\nid{separator}text\r\n" + "".join(f"{n}{separator}the sea {n}\r\n" for n in range(20))
        corpus = load(write(tmp_path / "a.csv", table), field="text", format="fields")
        assert text_of(corpus).splitlines() == [f"the sea {n}" for n in range(20)]
