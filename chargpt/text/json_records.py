"""The records of JSON and JSON lines."""

import io
import json
import re
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

from chargpt.errors import UserError
from chargpt.text.json_files import BRACKETS, JSON_LINES, listed
from chargpt.text.kind import Noted, Record, Text, lines_in

MAX_JSON = 2**30  # characters of a file of JSON, which must fit into memory
MISSING = object()  # in place of the value of a field that a record does not have
NOT_JSON = "correct it, or if it is plain text, give it a name that ends in .txt"
# What an export of Meta has beyond ASCII, the bytes of UTF-8, each as a character; a backslash is no part of them. And others.
AS_BYTES = re.compile(r"((?:\\u00[89a-f][\da-f]|[\x80-\xff])+)|\\\\", re.IGNORECASE)
TOGETHER = "characters whose bytes were written one by one, as Meta does (Ã© for é), put together"
OTHERS = re.compile(r"(?<!\\)(?:\\\\)*\\u(?!00)|[^\0-\xff]")
BEGINNING = re.compile(r"[^\s,\[\]]")  # of a record of a list


def join_texts(parts: list[Any]) -> str:
    """The text of a list: lines, if all of it is text, and otherwise the parts of one text, some of them in objects."""
    if all(isinstance(part, str) for part in parts):
        return "\n".join(parts)
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
        if isinstance(value, dict) and isinstance(value.get(field), str):
            yield Record(line, value)
            continue
        lines = dict[int, int]()
        for record, prefix in _records_in(value, field):
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
        end, part = 0, put_together(whole, line=line, noted=text.noted)
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
