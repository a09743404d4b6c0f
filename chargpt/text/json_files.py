"""JSON and JSON lines: the fields that a file has. `json_records.py` reads them. A name such as `data.text` is that of a field,
or of the field `text` in the object `data`, or in each object of the list `data`; these objects are then the records. A text
may be a list of parts: Telegram and chats with pictures write it so."""

import contextlib
import json
import re
from itertools import chain
from typing import Any

from chargpt.text.kind import Head, Kind, Reads, Structure, reader, structure_with

VALUES = 200  # of the head that are looked at
MAX_DEPTH = 6  # objects and lists in each other whose fields are named
FEWEST = 3  # objects that stand for a list of them if they have a field in common
# Of JSON, with commas; and strings, in which they mean nothing, also one that is cut.
BRACKETS = re.compile(r'"(?:[^"\\]|\\.?)*(?:"|\Z)|[\[\]{},]', re.DOTALL)


def _find(kind: Kind, head: Head) -> Structure | None:
    """The structure by the values at the start of a file, or by its name: JSON in any case if an object takes several lines."""
    is_named = head.suffix in kind.suffixes
    if not is_named and head.start[:1] not in ("{", "["):
        return None
    values, rest, takes_lines = list[Any](), head.start, False
    with contextlib.suppress(ValueError, RecursionError):
        while len(values) < VALUES and (rest := rest.lstrip()):
            value, at = json.JSONDecoder().raw_decode(rest)
            takes_lines |= isinstance(value, dict) and "\n" in rest[:at]
            values, rest = [*values, value], rest[at:]
    texts = texts_in(values if len(values) > 1 else _completed(head.start))
    if not is_named and not texts:
        return None
    kind = kind if is_named else JSON_LINES if len(values) > 1 else JSON
    return structure_with(texts, kind=JSON if takes_lines else kind)


def _completed(start: str) -> object:
    """The JSON value that begins with `start`, up to the last part that is complete before its end, or None."""
    opened, end, closing = "", 0, ""  # what closes the objects and lists that are open
    for match in BRACKETS.finditer(start):
        if match[0] in ("{", "["):
            opened = ("}" if match[0] == "{" else "]") + opened
        elif match[0] == ",":
            end, closing = match.start(), opened
        elif opened.startswith(match[0]):
            end, closing = match.end(), opened[1:]
            opened = closing
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(start[:end] + closing)
    return None


def listed(value: Any) -> Any:
    """A value of JSON, or the list of records that an object is: each under a key of its own, as in an export of ChatGPT; or as
    pandas writes a table, by columns, each under the number of its row, or in rows beside the names of the columns."""
    parts = [*value.values()] if isinstance(value, dict) else []
    kinds = {*map(type, parts)}
    if kinds == {list} and {"columns"} < value.keys() <= {"columns", "index", "data"}:
        rows = [row for row in value.get("data", [[""] * len(value["columns"])]) if isinstance(row, list)]
        return [dict(zip(map(str, value["columns"]), row)) for row in rows]
    if kinds != {dict} or not all(parts):
        return value
    if all(map(str.isdecimal, chain(*parts))) and not all(map(str.isdecimal, value)):
        return [dict(zip(value, row)) for row in zip(*map(dict.values, parts))]
    return parts if len(parts) >= FEWEST and set.intersection(*map(set, parts)) else value


def texts_in(value: object, *, depth: int = MAX_DEPTH) -> dict[str, list[str]]:
    """The path of each field in a JSON value or in the objects and lists in it, and the texts in this field. A list adds no
    name to a path. A list that holds text is the text of its field."""
    texts: dict[str, list[str]] = {}
    for record in value[:VALUES] if isinstance(value := listed(value), list) else [value]:
        for name, inner in record.items() if isinstance(record, dict) else ():
            parts = [part for part in (inner if isinstance(inner, list) else [inner]) if isinstance(part, str)]
            deeper = {} if parts or depth == 1 else texts_in(inner, depth=depth - 1)
            for path, found in deeper.items():
                texts.setdefault(f"{name}.{path}", []).extend(found)
            if not deeper:
                texts.setdefault(name, []).extend(["".join(parts)] * bool(parts))
    return texts


RECORDS = reader("json_records", "records_of")
JSON_LINES = Kind(name="JSON lines", suffixes=(".jsonl", ".ndjson"), find=_find, records=RECORDS, reads=Reads.NAMED)
JSON = Kind(name="JSON", suffixes=(".json",), find=_find, records=RECORDS)
