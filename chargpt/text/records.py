"""The records of JSON, JSON lines and tables: the text in a named field of each, with its labels.

In JSON, a name such as `data.text` is that of a field, or of the field `text` in the object `data`, or in each object of the
list `data`; these objects are then the records. A text may be a list of parts: Telegram and chats with pictures write it so.
"""

import csv
import difflib
import io
import json
import re
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from itertools import accumulate, chain
from typing import Any

from chargpt.config import DataConfig
from chargpt.errors import Option, UserError, Words
from chargpt.terminal import plural
from chargpt.text.formats import AUTHOR, CHATS, JSON_LINES, MESSAGE, NAME, TEXT, Structure, csv_reader, longest, named, texts_in

MAX_LINE = 2**28  # characters, which must fit into memory
MAX_JSON = 2**30  # characters of a file of JSON, likewise
MAX_FIELD = 2**24  # characters in a table; more are a sign of a quote that is never closed
MAX_COLUMNS = 2**20  # fields in a line; more would fill the memory, and are no table
MAX_WITHOUT = 1000  # records at the beginning that may lack a field, before that is a mistake
CSV_PROBLEMS = {  # how a message of the csv module begins or ends: what it means here
    "unexpected end of data": "a field in quotes has no closing quote; close it",
    "field larger than field limit": f"a field of more than {MAX_FIELD:,} characters; close its quote, or split it",
    "expected after": "a quote inside a field in quotes; write it twice, as CSV does",
}
Records = Iterator[tuple[int, Any, str]]  # the line where each begins, an object, and the part of a path that leads to it
LeftOut = MutableMapping[str, list[int]]  # what is left out of a text, and the lines where it was
MISSING = object()  # in place of the value of a field that a record does not have
KINDS = {int: "a number", float: "a number", bool: "true or false", dict: "an object"}
BEGINNING = re.compile(r"[^\s,\[\]]")  # of a record of a list
SURROGATE = re.compile("[\ud800-\udfff]")
OBJECT = re.compile(r'"(?:[^"\\]|\\.)*"|\{', re.DOTALL)  # a string, or the beginning of an object


def documents_in(
    pieces: Iterator[str], structure: Structure, config: DataConfig, *, label: str, left_out: LeftOut, messages: Records | None
) -> Iterator[tuple[int, str]]:
    """The line where each record of the text that `pieces` form begins, and the text in its field, which may be empty. `config`
    says which field, and which records are left out. Before the text are the labels for which it asks: joined by commas, each
    as one line, and a tab after the last. `label` names the file in errors. `messages` are the records of a chat. Raises
    UserError."""
    labels = [] if config.label_pattern else config.label_fields
    field = config.field
    if structure.kind in CHATS and config.format != "fields":
        field = TEXT if AUTHOR in labels else MESSAGE
    name, _, wanted = (" ".join(part.split()) for part in config.where.partition("="))
    asked = [("data.items" if config.items else "data.field", field), *(("data.label", one) for one in labels)]
    asked += [("data.where", name)] * bool(config.where)
    fields = [_Field(one, setting, label, is_table=structure.is_table) for setting, one in asked]
    if messages is not None:
        records = messages
    elif structure.is_table:
        records = rows_in(pieces, structure, [one.name for one in fields], label)
    else:
        records = _json_records(pieces, structure, field, label)
    for line, record, prefix in records:
        text, *values = [one.text_of(record, prefix, line) for one in fields]
        if config.where and " ".join(values.pop().split()) != wanted:
            left_out.setdefault(f"records where {name} is not {wanted}", []).append(line)
            continue
        before = ",".join(" ".join(value.split()) for value in values)
        yield line, f"{before}\t{text}" if values else text
    for one in fields:
        one.check_found()


def _json_records(pieces: Iterator[str], structure: Structure, field: str, label: str) -> Records:
    """The records of JSON. What a record is, the path `field` says."""
    texts = enumerate(lines_in(pieces, label), 1) if structure.kind == JSON_LINES else whole(pieces, label)
    for line, value, source in values_in(texts, label):
        records = list(records_in(value, field))
        lines = {id(value): line}
        if records and records[0][0] is not value:  # the records are inside it
            lines |= lines_of_objects(value, source, line)
        yield from ((lines.get(id(record), line), record, prefix) for record, prefix in records)


class _Field:
    """A named field of the records of a file. A record without it has an empty text; a file without it is a mistake."""

    def __init__(self, name: str, setting: str, label: str, *, is_table: bool) -> None:
        self.name, self._setting, self._label, self._is_table = name, setting, label, is_table
        self._without, self._is_found = 0, False  # records without text in the field, and whether one has it
        self._problem: UserError | None = None  # the first of them

    def text_of(self, record: object, prefix: str, line: int) -> str:
        """The text of a `record` to which the `prefix` of the name leads. Raises UserError."""
        where = f"{self._label}: line {line:,}"
        if not isinstance(record, dict):
            raise UserError(f'{where}: not a JSON object; write each record like {{"{self.name}": "its text"}}')
        value = _value_of(record, self.name.removeprefix(prefix))
        if self._setting in ("data.label", "data.where") and isinstance(value, (int, float)):  # true and false are numbers
            value = json.dumps(value)
        text = (joined(value) or None) if isinstance(value, list) else value
        if isinstance(text, (dict, int, float)):
            raise UserError(f"{where}: field {self.name!r} is {KINDS[type(text)]}; ", *self._advice(record, prefix))
        if isinstance(text, str):
            self._is_found = True
            if SURROGATE.search(text):
                raise UserError(f"{where}: half of a character in {self.name!r}, such as \\ud83d alone; delete it there")
            return text
        self._without += 1
        if self._problem is None:
            what = f"no field {self.name!r}" if value is MISSING else f"no text in the field {self.name!r}"
            names = named(f"{prefix}{name}" for name in texts_in(record))
            self._problem = UserError(f"{where}: {what}, its fields are: {names}; ", *self._advice(record, prefix))
        if self._without >= MAX_WITHOUT:
            self.check_found()
        return ""

    def check_found(self) -> None:
        """Raise UserError if no record had text in this field, and some record was there."""
        if self._problem is not None and not self._is_found:
            raise self._problem

    def _advice(self, record: dict[str, Any], prefix: str) -> list[Words]:
        name, texts = self.name, {f"{prefix}{name}": values for name, values in texts_in(record).items()}
        inside = {other: values for other, values in texts.items() if other.startswith(f"{name}.")}
        others = [other for other in texts if other != name][:MAX_WITHOUT]  # of a stranger's table with a million columns
        close = [other for other in others if other.endswith(f".{name}")] or difflib.get_close_matches(name, others, n=1)
        if close and not inside:
            return ["did you mean ", Option(self._setting, close[0]), "?"]
        what_to_do = f"set {self._setting} to a field with text"
        if self._is_table and not all(map(NAME.fullmatch, texts)):  # its first row has no names
            return [f"{what_to_do}, or its number, such as ", Option(self._setting, 1)]
        example = longest(inside) or longest(texts)
        return [f"{what_to_do}, for example ", Option(self._setting, example)] if example else [what_to_do]


def joined(parts: list[Any]) -> str:
    """The text of a list: lines, if all of it is text, and otherwise the parts of one text, some of them in objects."""
    if all(isinstance(part, str) for part in parts):
        return "\n".join(parts)
    texts = (part.get("text") if isinstance(part, dict) else part for part in parts)
    return "".join(text for text in texts if isinstance(text, str))


def _value_of(record: dict[str, Any], field: str) -> Any:
    """The value of the field of that name, or of the one at the end of a path such as data.text; MISSING if there is none."""
    if field in record:
        return record[field]
    value: Any = record
    for name in field.split("."):
        if not isinstance(value, dict) or name not in value:
            return MISSING
        value = value[name]
    return value


def records_in(value: object, field: str, prefix: str = "") -> Iterator[tuple[object, str]]:
    """The records in a JSON value, and the part of the path `field` that leads to them: the value itself if it has the field;
    or the objects of the list on the path; or, if the path begins elsewhere, those of the only list whose objects have the
    field."""
    rest = field.removeprefix(prefix)
    if isinstance(value, dict) and _value_of(value, rest) is MISSING:
        names = rest.split(".")
        for head in accumulate(names[:-1], "{}.{}".format):
            if isinstance(inner := _value_of(value, head), list):
                for one in inner:
                    yield from records_in(one, field, f"{prefix}{head}.")
                return
        lists = [inner for inner in value.values() if isinstance(inner, list) and all(isinstance(one, dict) for one in inner)]
        lists = [inner for inner in lists if any(_value_of(one, rest) is not MISSING for one in inner)]
        if len(lists) == 1:
            yield from ((one, prefix) for one in lists[0])
            return
    yield value, prefix


def lines_of_objects(value: object, source: str, line: int) -> dict[int, int]:
    """The line where each object in a JSON `value` begins, by its id(). `source` is its text, which begins on `line`."""
    at, lines = 0, dict[int, int]()
    beginnings = (match.start() for match in OBJECT.finditer(source) if match.group() == "{")
    waiting = [value]
    while waiting:  # objects and lists, in the order in which they begin
        inner = waiting.pop()
        if isinstance(inner, dict):
            start = next(beginnings)
            line, at = line + source.count("\n", at, start), start
            lines[id(inner)] = line
            waiting += reversed(inner.values())
        elif isinstance(inner, list):
            waiting += reversed(inner)
    return lines


def whole(pieces: Iterable[str], label: str) -> list[tuple[int, str]]:
    """A text that comes in pieces, as its first line and all of it: one text for `values_in`. Raises UserError."""
    text = io.StringIO()
    for piece in pieces:
        if text.write(piece) and text.tell() > MAX_JSON:
            raise UserError(f"{label}: larger than {MAX_JSON:,} characters; write it as JSON lines, one object per line")
    return [(1, text.getvalue())]


def values_in(texts: Iterable[tuple[int, str]], label: str) -> Iterator[tuple[int, Any, str]]:
    """The line where each value in some texts of JSON begins, the value, and its JSON. Each text comes with the line where it
    begins; its values are those of a list, or one after the other. Raises UserError."""
    decoder = json.JSONDecoder()
    for line, text in texts:
        at = 0
        while begin := BEGINNING.search(text, at):
            start = begin.start()
            line += text.count("\n", at, start)
            try:
                value, at = decoder.raw_decode(text, start)
            except (ValueError, RecursionError) as error:
                there = line + text.count("\n", start, getattr(error, "pos", start))
                what_to_do = "correct it, or if it is plain text, give it a name that ends in .txt"
                raise UserError(f"{label}: line {there:,}: not JSON ({getattr(error, 'msg', error)}); {what_to_do}") from None
            yield line, value, text[start:at]
            line += text.count("\n", start, at)


def rows_in(pieces: Iterator[str], structure: Structure, wanted: Sequence[str], label: str) -> Records:
    """The records of a table: a text by the name of each column. The first row has the names, unless one of those `wanted` is
    the number of a column: then all are named by their numbers. Line ends inside a field become newlines. Raises UserError."""
    csv.field_size_limit(MAX_FIELD)
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    translated = (newlines.decode(piece, final=not piece) for piece in chain(filter(None, pieces), [""]))
    lines = (f"{text}\n" for text in lines_in(translated, label))
    rows = csv_reader(lines, delimiter=structure.delimiter, quoted=structure.quoted)
    header: list[str] = []
    done = 0  # lines before the record
    try:
        for row in rows:
            line, done = done + 1, rows.line_num
            if not row:
                continue
            if not header:
                if len(row) > MAX_COLUMNS:
                    what = f"more than {MAX_COLUMNS:,} columns with {structure.delimiter!r} between them"
                    raise UserError(f"{label}: line {line:,}: {what}; correct the line, or name a file without columns .txt")
                header, numbers = [name.strip() for name in row], [f"{number}" for number in range(1, len(row) + 1)]
                if twice := next((name for name in wanted if header.count(name) > 1), None):
                    raise UserError(f"{label}: {header.count(twice)} columns are named {twice!r}; give each its own name")
                if set(header).issuperset(wanted) or not set(numbers) & set(wanted):
                    continue
                header = numbers
            if len(row) != len(header) and any(row[len(header) :] or [len(row) < len(header)]):
                count = f"{plural(len(row), 'column')}, but the header has {len(header):,}, divided at {structure.delimiter!r}"
                what_to_do = "correct that line; a field that contains the separator or a line end must be in quotes"
                raise UserError(f"{label}: line {line:,}: {count}; {what_to_do}")
            yield line, dict(zip(header, row)), ""
    except csv.Error as error:
        known = next((what for text, what in CSV_PROBLEMS.items() if text in str(error)), f"not {structure.kind} ({error})")
        raise UserError(f"{label}: line {done + 1:,}: {known}") from None


def lines_in(pieces: Iterable[str], label: str) -> Iterator[str]:
    """The lines of a text in pieces, without their ends \\n; the last one is empty if the text ends with a line end. `label`
    names the text in errors. Raises UserError for a line that may not fit into memory."""
    held: list[str] = []
    for piece in pieces:
        first, *others = piece.split("\n")
        held.append(first)
        if sum(map(len, held)) > MAX_LINE:
            raise UserError(f"{label}: a line is longer than {MAX_LINE:,} characters; split it")
        for other in others:
            yield "".join(held)
            held = [other]
    yield "".join(held)
