"""JSON lines: the field that was named, and errors with the line."""

import gzip
import json

import pytest
from text_helpers import text_of

from chargpt.terminal import UserError
from chargpt.text import json_lines, records


def test_json_lines_take_the_field_named(load, tmp_path):
    records = [{"body": "one\nline\u2028"}, {"body": "two", "id": 5}, {"body": "é" * 20}]
    path = tmp_path / "all.jsonl.gz"
    path.write_bytes(gzip.compress("\n\n".join(json.dumps(record) for record in records).encode()))
    assert text_of(load(path, field="body")) == "one\nline\u2028\ntwo\n" + "é" * 20
    with pytest.raises(UserError, match="line 1: no field 'text', its fields are: body; name the one"):
        load(path)
    with pytest.raises(UserError, match="line 3: field 'id' is a number"):
        path.write_bytes(gzip.compress(b'{"id": "a"}\n\n{"id": 5}'))
        load(path, field="id")


@pytest.mark.parametrize(
    "line, message",
    [
        ("{", "line 2: not JSON"),
        ("[1]", "line 2: not a JSON object"),
        ('{"text": "\\ud800"}', "line 2: half a surrogate pair"),
        ("[" * 10**5, "line 2: not JSON"),
    ],
    ids=["broken", "no object", "surrogate", "deep"],
)
def test_json_lines_errors_name_the_line(line, message, load, tmp_path):
    (tmp_path / "all.jsonl").write_text('{"text": "fine"}\n' + line)
    with pytest.raises(UserError, match=message):
        load(tmp_path / "all.jsonl")


LISTS = {
    "a list": json.dumps([{"body": "the sea"}, {"body": "é海\nstone", "n": 1.5}]),
    "a list on many lines": json.dumps([{"body": "the sea"}, {"body": "é海\nstone"}], indent=2, ensure_ascii=False),
    "a list in an object": json.dumps({"n": 2, "poems": [{"body": "the sea"}, {"body": "é海\nstone"}]}),
    "objects on lines": '{"body": "the sea"}\n{"body": "é海\\nstone"}\n',
}


@pytest.mark.parametrize("case", LISTS)
@pytest.mark.parametrize("size", [1, 1000])
def test_a_json_list_is_read_by_the_field_named_however_it_is_cut(case, size):
    pieces = [LISTS[case][at : at + size] for at in range(0, len(LISTS[case]), size)]
    documents = list(json_lines.json_list_documents(pieces, field="body", label="a"))
    assert [text for _, text in documents] == ["the sea", "é海\nstone"]
    if case == "a list on many lines":
        assert [line for line, _ in documents] == [2, 5]


@pytest.mark.parametrize(
    "content, message",
    [
        ('[{"body": "fine"},\n{"body": "a"', "a.json: line 2: not JSON"),
        ('[{"body": "fine"},\n 5]', "a.json: line 2: not a JSON object"),
        (
            '{"poems": {"body": "a"}}',
            "a.json: line 1: no field 'body', .* poems, poems.body; did you mean data.field=poems.body",
        ),
        ('[{"bodies": "a"}]', "did you mean data.field=bodies?"),
        ('[{"n": "1", "verse": "the sea"}]', "for example data.field=verse"),
        ("[" * 10**5, "a.json: empty; give"),
        ('[{"body": ' + "[" * 10**5, "a.json: line 1: not JSON"),
    ],
    ids=["cut", "no object", "deep", "misspelt", "other fields", "nothing", "nested"],
)
def test_json_errors_name_the_line(content, message, load, tmp_path):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(UserError, match=message) as error:
        load(tmp_path / "a.json", field="body", format="fields")
    assert "\n" not in str(error.value)


def test_a_line_that_would_not_fit_into_memory_is_an_error(load, tmp_path, monkeypatch):
    monkeypatch.setattr(records, "MAX_LINE", 2_000_000)
    (tmp_path / "all.jsonl").write_text('{"text": "' + "a" * 10_000_000)
    with pytest.raises(UserError, match="all.jsonl: a line is longer than 2,000,000 characters; split it"):
        load(tmp_path / "all.jsonl")


def test_json_lines_may_be_longer_than_a_chunk(load, tmp_path):
    texts = ["a" * 3_000_000, "海" * 1_000_000, "b" * 10]
    (tmp_path / "all.ndjson").write_text("\n".join(json.dumps({"text": text}, ensure_ascii=False) for text in texts))
    assert text_of(load(tmp_path / "all.ndjson")) == "\n".join(texts)


def test_a_field_in_a_field_is_named_by_its_path(load, tmp_path):
    path = tmp_path / "all.jsonl"
    path.write_text('{"data": {"body": "the sea"}}\n{"data": {"body": "a stone", "n": 1}}\n')
    assert text_of(load(path, field="data.body")) == "the sea\na stone"
    path.write_text('{"data.body": "the sea and the stone", "data": {"body": "not this"}}\n')
    assert text_of(load(path, field="data.body")) == "the sea and the stone"
    (tmp_path / "all.json").write_text('{"poems": [{"data": {"body": "the sea"}}, {"data": {"body": "a stone"}}]}')
    assert text_of(load(tmp_path / "all.json", field="data.body", format="fields")) == "the sea\na stone"


@pytest.mark.parametrize(
    "record, field, message",
    [
        (
            '{"data": {"body": "the sea"}}',
            "body",
            "no field 'body', its fields are: data, data.body; did you mean data.field=data.body",
        ),
        ('{"data": {"body": "the sea"}}', "data", "field 'data' is an object; .* for example data.field=data.body"),
        ('{"data": {"body": "the sea"}}', "data.n", "no field 'data.n'"),
        ('{"data": {"body": "the sea"}}', "data.body.n", "no field 'data.body.n'"),
        ('{"data": {"body": 5}}', "data.body", "field 'data.body' is a number"),
        ('{"data": {}}', "data", "field 'data' is an object; name one with text in data.field$"),
        ('{"data": [{"body": "the sea"}]}', "data.body", "no field 'data.body', .*; 'data' is a list; write the texts"),
        ('{"a":' * 800 + '"deep"' + "}" * 800, "text", "no field 'text'"),
    ],
)
def test_a_path_that_leads_to_no_text_is_one_line_that_names_paths_that_do(record, field, message, load, tmp_path):
    (tmp_path / "all.jsonl").write_text(record)
    with pytest.raises(UserError, match=f"line 1: {message}"):
        load(tmp_path / "all.jsonl", field=field)
