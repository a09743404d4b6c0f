"""JSON lines: the field that was named, and errors with the line."""

import gzip
import json

import pytest
from text_helpers import text_of

from chargpt.terminal import UserError
from chargpt.text import json_lines


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


def test_a_line_that_would_not_fit_into_memory_is_an_error(load, tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "MAX_LINE", 2_000_000)
    (tmp_path / "all.jsonl").write_text('{"text": "' + "a" * 10_000_000)
    with pytest.raises(UserError, match="all.jsonl: a line is longer than 2,000,000 characters; split it"):
        load(tmp_path / "all.jsonl")


def test_json_lines_may_be_longer_than_a_chunk(load, tmp_path):
    texts = ["a" * 3_000_000, "海" * 1_000_000, "b" * 10]
    (tmp_path / "all.ndjson").write_text("\n".join(json.dumps({"text": text}, ensure_ascii=False) for text in texts))
    assert text_of(load(tmp_path / "all.ndjson")) == "\n".join(texts)
