"""The fields and the records of JSON and JSON lines. A name such as `data.text` is that of a field, or of the field `text` in
the object `data`, or in each object of the list `data`; these objects are then the records. A text may be a list of parts:
Telegram and chats with pictures write it so."""

import contextlib
import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import accumulate, chain, count
from types import NoneType
from typing import Any

from chargpt.errors import UserError
from chargpt.text.json_files import JSON, JSON_LINES
from chargpt.text.kind import Head, Kind, Noted, Record, Structure, Text, lines_in, structure_with

VALUES = 200  # of the head that are looked at
MAX_DEPTH = 6  # objects and lists in each other whose fields are named
FEWEST = 3  # objects that stand for a list of them if they have a field in common
MANY = 20  # texts in an object that is all of a file, from which they are a list of texts, and not the fields of a record
# Of JSON, with commas; and strings, in which they mean nothing, also one that is cut.
BRACKETS = re.compile(r'"(?:[^"\\]|\\.?)*(?:"|\Z)|[\[\]{},]', re.DOTALL)
MAX_JSON = 2**30  # characters of a file of JSON, which must fit into memory
MISSING = object()  # in place of the value of a field that a record does not have
NOT_JSON = "correct it, or if it is plain text, give it a name that ends in .txt"
# What an export of Meta has beyond ASCII, the bytes of UTF-8, each as a character; a backslash is no part of them. And others.
AS_BYTES = re.compile(r"((?:\\u00[89a-f][\da-f]|[\x80-\xff])+)|\\\\", re.IGNORECASE)
TOGETHER = "characters whose bytes were written one by one, as Meta does (Ã© for é), put together"
OTHERS = re.compile(r"(?<!\\)(?:\\\\)*\\u(?!00)|[^\0-\xff]")
OPENING = re.compile(r"\s*\[?")  # of the list of all records
BEGINNING = re.compile(r'[^\s,;\[\]]|\[(?=\s*["\w-])')  # of a record of a list, which may be a row of values
SCRIPT = re.compile(r"\A\s*window\.[\w.]+ *= *")  # what stands before JSON in an archive of Twitter


def structure_of(kind: Kind, head: Head) -> Structure | None:
    """The structure by the values at the start of a file, or by its name: JSON in any case if an object takes several lines."""
    is_named, takes_lines = head.suffix in kind.suffixes, False
    rest = start = SCRIPT.sub("", head.start)
    values = list[Any]()
    with contextlib.suppress(ValueError, RecursionError):
        while len(values) < VALUES and (rest := rest.lstrip()):
            value, at = json.JSONDecoder().raw_decode(rest)
            takes_lines |= isinstance(value, dict) and "\n" in rest[:at]
            values, rest = [*values, value], rest[at:]
    value = values if len(values) > 1 else entries_of(_completed(start))
    texts = texts_in(value)
    if not is_named and not texts:
        return None
    kind = kind if is_named else JSON_LINES if len(values) > 1 else JSON
    found = structure_with(texts, kind=JSON if takes_lines else kind)
    return found if values or not _is_cut_column(value) else replace(found, best="", author="")


def _is_cut_column(value: object) -> bool:
    """Whether what is there of a JSON value ends in a column, so that others, which have more text, may follow."""
    *_, last = (None, *value.values()) if isinstance(value, dict) else (None,)
    parts = [*last.values()] if isinstance(last, dict) else last if isinstance(last, list) else []
    return bool(parts) and not any(isinstance(part, (dict, list)) for part in parts)


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
    pandas writes a table, by columns, each under the number of its row, or in rows beside the names of the columns. The records
    of a list may be rows without names."""
    if isinstance(value, list):
        return [*map(numbered, value)]
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


def numbered(value: Any) -> Any:
    """A record, if it is a row of values or one text, with their numbers as names, as the columns of a table have."""
    row = [value] if isinstance(value, str) else value
    is_row = isinstance(row, list) and any(isinstance(part, (str, NoneType)) for part in row)
    return dict(zip(map(str, count(1)), row)) if is_row else value


def entries_of(value: Any) -> Any:
    """The rows of an object that has a text under each of many names: the name and the text. Any other value stays."""
    is_many = isinstance(value, dict) and len(value) >= MANY and {*map(type, value.values())} == {str}
    return [[*entry] for entry in value.items()] if is_many else value


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


def join_texts(parts: list[Any]) -> str:
    """The text of a list: lines, if all of it is text, and otherwise the parts of one text, some of them in objects."""
    if all(isinstance(part, str) for part in parts):
        return "\n".join(part.removesuffix("\n") for part in parts)
    texts = (part.get("text") if isinstance(part, dict) else part for part in parts)
    return "".join(text for text in texts if isinstance(text, str))


def value_of(record: dict[str, Any], field: str) -> Any:
    """The value of the field of that name, or of the one at the end of a path such as data.text; MISSING if there is none."""
    if field in record:
        return record[field]
    value: Any = record
    for name in field.split("."):
        if not isinstance(value, dict) or name not in value:
            return MISSING
        value = value[name]
    return value


def records_of(text: Text) -> Iterator[Record]:
    """What a record is, the path of the field says. Raises UserError."""
    field, is_lines = text.wanted[0], text.structure.kind is JSON_LINES
    for line, value, source in _values_in(enumerate(lines_in(text.pieces, text.label), 1) if is_lines else _whole(text), text):
        is_number = field.isdecimal()
        if is_number and (rows := entries_of(value)) is not value:
            yield from (Record(line, numbered(row)) for row in rows)
            continue
        whole = numbered(value) if is_number else value
        if isinstance(whole, dict) and isinstance(whole.get(field), str):
            yield Record(line, whole)
            continue
        lines = dict[int, int]()
        for record, prefix in _records_in(whole, field):
            if record is not value and not lines:
                lines = _lines_of_objects(value, source, line)
            yield Record(lines.get(id(record), line), record, prefix)


def _records_in(value: object, field: str, prefix: str = "") -> Iterator[tuple[object, str]]:
    """The records in a JSON value, and the part of the path `field` that leads to them: the value itself if it has it; or the
    objects that are listed in it, or on the path; or, if it begins elsewhere, those of the only list whose objects have it."""
    rest = field.removeprefix(prefix)
    if isinstance(value, dict) and ((found := value_of(value, rest)) is MISSING or isinstance(found, dict)):
        for head in ("", *accumulate(rest.split(".")[:-1], "{}.{}".format)):
            if isinstance(inner := listed(value_of(value, head) if head else value), list):
                for one in inner:
                    yield from _records_in(one, field, f"{prefix}{head}{'.' * bool(head)}")
                return
        lists = [inner for inner in value.values() if isinstance(inner, list) and all(isinstance(one, dict) for one in inner)]
        lists = [inner for inner in lists if any(value_of(one, rest) is not MISSING for one in inner)]
        if len(lists) == 1:
            yield from ((one, prefix) for one in lists[0])
            return
    yield value, prefix


def _lines_of_objects(value: object, source: str, line: int) -> dict[int, int]:
    """The line where each object in a JSON `value` begins, by its id(). `source` is its text, which begins on `line`."""
    at, lines, waiting = 0, dict[int, int](), [value]  # objects and lists, in the order in which they begin
    beginnings = (match.start() for match in BRACKETS.finditer(source) if match[0] == "{")
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict):
            start = next(beginnings)
            line, at = line + source.count("\n", at, start), start
            lines[id(inner)] = line
        waiting += reversed([*inner.values()] if isinstance(inner, dict) else inner if isinstance(inner, list) else [])
    return lines


def _whole(text: Text) -> list[tuple[int, str]]:
    """A text as its first line and all of it: one text for `_values_in`. Raises UserError."""
    content = io.StringIO()
    for piece in text.pieces:
        if content.write(piece) and content.tell() > MAX_JSON:
            raise UserError(f"{text.label}: larger than {MAX_JSON:,} characters; write it as JSON lines, one object per line")
    return [(1, content.getvalue())]


def put_together(source: str, *, line: int, noted: Noted) -> str:
    """The `source` of JSON, from a `line` on; with the characters that are meant if all beyond ASCII are bytes of UTF-8."""
    found = [] if OTHERS.search(source) else [one for one in AS_BYTES.finditer(source) if one[1]]
    try:
        meant = iter([json.loads(f'"{one[1]}"').encode("latin-1").decode() for one in found])
    except ValueError:  # some of them are no UTF-8, and mean themselves
        return source
    if found:
        noted.setdefault(TOGETHER, []).extend([line + source.count("\n", 0, found[0].start())] * len(found))
    return AS_BYTES.sub(lambda one: next(meant) if one[1] else one[0], source) if found else source


def _values_in(parts: Iterable[tuple[int, str]], text: Text) -> Iterator[tuple[int, Any, str]]:
    """The line where each value in some parts of a file begins, the value, and its JSON. Each part comes with the line where it
    begins; its values are those of a list, or one after the other. Raises UserError."""
    decode = json.JSONDecoder().raw_decode
    for line, whole in parts:
        part = SCRIPT.sub("", put_together(whole, line=line, noted=text.noted))
        end = 0 if text.structure.kind is JSON_LINES else next(OPENING.finditer(part)).end()
        while found := BEGINNING.search(part, end):
            start = found.start()
            line += part.count("\n", end, start)
            try:
                value, end = decode(part, start)
            except (ValueError, RecursionError) as error:
                line += part.count("\n", start, getattr(error, "pos", start))
                raise UserError(f"{text.label}: line {line:,}: not JSON ({getattr(error, 'msg', error)}); {NOT_JSON}") from None
            yield line, value, part[start:end]
            line += part.count("\n", start, end)
