"""Structured files: CSV, TSV, JSON, HTML, XML and subtitles are recognised by their name and by how they begin.

A table, JSON lines and a JSON list have named fields, and `data.field` selects the one to train on. The other formats have no
reader here: they are trained on as they are, with a warning that names a command which extracts their text.
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chargpt.config import DataConfig
from chargpt.errors import Message, Option, Words, shell_word
from chargpt.files import WINDOWS
from chargpt.text.charsets import byte_order_mark
from chargpt.text.formats import plain_name
from chargpt.text.source_bytes import Source

if TYPE_CHECKING:
    import _csv

HEAD = 2**16  # bytes at the beginning of a file that are looked at
MAX_NAMED = 12  # columns or fields that a message lists
MAX_NAME = 60  # characters of each of them
MAX_COMPARED = 10_000  # columns or fields among which a mistyped one is looked for
MAX_SNIFFED = 16  # files without a telling name that are looked into
ROWS = 200  # rows of the head that are compared
SURE_ROWS = 10  # rows of equal width in a file whose name does not say that it is a table
BETWEEN = re.compile(r"[\s,]*")  # what is between the objects of a list
NAME = re.compile(r"[^\W\d][\w .()/%#-]{0,39}(?<!\.)")  # a column's name: it begins with a letter, and is not a sentence
# The formats, as messages name them.
JSON_LINES = "JSON lines"
JSON = "JSON"
CSV = "CSV"
TSV = "TSV"
HTML = "HTML"
XML = "XML"
SRT = "SRT"
VTT = "WebVTT"
SUFFIXES = {
    ".jsonl": JSON_LINES,
    ".ndjson": JSON_LINES,
    ".json": JSON,
    ".csv": CSV,
    ".tsv": TSV,
    ".tab": TSV,
    ".html": HTML,
    ".htm": HTML,
    ".xhtml": HTML,
    ".xml": XML,
    ".srt": SRT,
    ".vtt": VTT,
}
BEGINNINGS = (  # how a file of a format begins, after white space
    (re.compile(r"(<\?xml[^>]*>\s*)?<(!doctype\s+html|html)\b", re.IGNORECASE), HTML),
    (re.compile(r"<\?xml\s"), XML),
    (re.compile(r"WEBVTT(\s|$)"), VTT),
    (re.compile(r"\d+[ \t]*\r?\n\d+:\d\d:\d\d[,.]\d{1,3} --> \d+:\d\d:\d\d"), SRT),
)
DELIMITERS = {CSV: ",;\t|", TSV: "\t"}
# A command that prints the text of a file. Python runs each of them on every system. {} is the name of the file.
TAGS = "'(?si)<(script|style).*?</(script|style)>|<[^>]*>'"
BREAKS = "r'(?i)<br[^>]*>|</(p|div|h[1-6]|li|tr|pre)>'"  # tags of HTML that end a line
TIMES = "r'(?m)^(WEBVTT.*|\\d+|.*-->.*)$\\n?|</?[a-z][^>]*>'"  # and tags such as <i>
COMMANDS = {
    HTML: "import html, re, sys; "
    rf"print(html.unescape(re.sub({TAGS}, '', re.sub({BREAKS}, '\n', open(sys.argv[1]).read()))))",
    XML: r"import sys, xml.etree.ElementTree as tree; print('\n'.join(tree.parse(sys.argv[1]).getroot().itertext()))",
    SRT: f"import re, sys; print(re.sub({TIMES}, '', open(sys.argv[1]).read()))",
}
COMMANDS[VTT] = COMMANDS[SRT]


@dataclass(frozen=True, kw_only=True)
class Structure:
    """The format of a file, and how to read it."""

    kind: str
    delimiter: str = ""  # between the fields of a table
    quoted: bool = True  # whether a field of a table may be in quotes
    fields: tuple[str, ...] = ()  # the names in the first row or record
    longest: str = ""  # the field whose texts are longest, which is probably the one to train on

    @property
    def has_fields(self) -> bool:
        """Whether `data.field` selects a part of it."""
        return self.kind in (CSV, TSV, JSON, JSON_LINES)

    @property
    def tag(self) -> str:
        """A text that is equal for two files which are read in the same way. Fingerprints of runs contain it."""
        if self.kind in (CSV, TSV):
            return f"table {self.delimiter!r} {self.quoted}"
        return "True" if self.kind == JSON_LINES else self.kind


def fields_of(source: Source, head: bytes, config: DataConfig) -> Structure | None:
    """The structure by which `source`, which begins with `head`, is read; None if it is read as it is."""
    if not may_have_fields(source, config):
        return None
    structure = recognise(_suffix(source), _decoded(head, config), field=config.field)
    return structure if structure is not None and structure.has_fields else None


def may_have_fields(source: Source, config: DataConfig) -> bool:
    """Whether `source` is read by a field if it has fields; without looking into it."""
    is_json_lines = SUFFIXES.get(_suffix(source)) == JSON_LINES
    return config.format == "fields" or (config.format == "auto" and is_json_lines)


def recognised(source: Source, config: DataConfig) -> str:
    """What `source` is, whatever `config` says about how to read it. Raises UserError if it cannot be read."""
    structure = recognise(_suffix(source), _decoded(read_head(source), config))
    return "plain text" if structure is None else structure.kind


def read_head(source: Source) -> bytes:
    """The beginning of `source`. Raises UserError if it cannot be read."""
    return next(source.chunks(HEAD), b"")


def warnings_about(sources: Sequence[Source], config: DataConfig) -> list[Words]:
    """A line for each structured format that is read as it is, with what to do about it. Raises UserError."""
    if config.format == "text":
        return []
    first: dict[str, tuple[Source, Structure]] = {}
    counts: dict[str, int] = {}
    sniffed = 0
    for source in sources:
        kind = SUFFIXES.get(_suffix(source))
        if kind in first:
            counts[kind] += 1
            continue
        if kind is None and (sniffed := sniffed + 1) > MAX_SNIFFED:
            continue
        head = read_head(source)
        structure = None if fields_of(source, head, config) else recognise(_suffix(source), _decoded(head, config))
        if structure and structure.kind in first:
            counts[structure.kind] += 1
        elif structure and not (structure.delimiter and len(structure.fields) == 1):  # a column alone has no separators
            first[structure.kind], counts[structure.kind] = (source, structure), 1
    return [_warning(source, structure, counts[kind]) for kind, (source, structure) in first.items()]


def named(fields: Iterable[str]) -> str:
    """The names of fields for a message, the first ones if there are many."""
    fields = list(fields)
    more = f" and {len(fields) - MAX_NAMED:,} more" if len(fields) > MAX_NAMED else ""
    return ", ".join(name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}..." for name in fields[:MAX_NAMED]) + more or "none"


def recognise(suffix: str, head: str, *, field: str = "") -> Structure | None:
    """The structure of a file whose name ends in `suffix` and which begins with `head`; None for plain text.

    A file whose name says nothing is a table with a column `field` if its first line has that name.
    """
    kind = SUFFIXES.get(suffix)
    start = head.lstrip("\ufeff \t\r\n")
    if kind is None:
        kind = next((kind for pattern, kind in BEGINNINGS if pattern.match(start)), None)
    if kind in (JSON, JSON_LINES) or (kind is None and start[:1] in ("{", "[")):
        return _json(kind, start)
    if kind in DELIMITERS:
        tables = [_table(kind, head, delimiter) for delimiter in DELIMITERS[kind]]
        alone = not set(field) & set(DELIMITERS[kind])  # not several names, which would be a header without a delimiter
        return max(tables, key=lambda found: (alone and field in found[0].fields, len(found[0].fields) > 1, found[1]))[0]
    if kind is not None:
        return Structure(kind=kind)
    return _unnamed_table(head, field)


def _suffix(source: Source) -> str:
    return "" if source.path is None else plain_name(source.path).suffix.lower()


def _decoded(head: bytes, config: DataConfig) -> str:
    mark, encoding = byte_order_mark(head)
    return head[len(mark) : HEAD].decode(encoding if mark else config.encoding, "ignore")


def _json(kind: str | None, start: str) -> Structure | None:
    """JSON or JSON lines, by the records at the `start` of a file; None if it is neither, unless its name says so."""
    first, _, rest = start.partition("\n")
    records = list(_records(start.removeprefix("[")))
    if kind is None:
        on_lines = _is_object(first) and _is_object(rest.lstrip().partition("\n")[0])
        if not records and not re.match(r'\{\s*"[^"\n]*"\s*:\s*["\[{\d]', start):
            return None
        kind = JSON_LINES if on_lines else JSON
    texts: dict[str, list[str]] = {}
    for record in records[:ROWS]:
        for name, value in record.items():
            if isinstance(value, str):
                texts.setdefault(name, []).append(value)
    is_list = len(records) > 1 or start.startswith("[") or kind == JSON_LINES
    return Structure(kind=kind, fields=tuple(records[0]) if records else (), longest=_longest(texts) if is_list else "")


def _records(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects at the beginning of `text`, up to the first thing that is not an object."""
    at, decoder = 0, json.JSONDecoder()
    for _ in range(ROWS):
        at = end_of(BETWEEN, text, at)
        try:
            record, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        if not isinstance(record, dict) or not record:
            return
        yield record


def _is_object(line: str) -> bool:
    return next(_records(line), None) is not None


def _table(kind: str, head: str, delimiter: str) -> tuple[Structure, float]:
    """The table in `head`, if `delimiter` separates its fields, and the share of its rows that are as wide as the first."""
    quoted = True
    rows = _rows(head, delimiter, quoted=True)
    if rows is None and delimiter == "\t":  # many programs write quotes into TSV as they are
        quoted, rows = False, _rows(head, delimiter, quoted=False)
    if not rows:  # its quotes are wrong, which its reader reports with the line
        rows = _rows(head.partition("\n")[0], delimiter, quoted=False) or [[]]
        return Structure(kind=kind, delimiter=delimiter, fields=tuple(name.strip() for name in rows[0])), 0.0
    header = tuple(name.strip() for name in rows[0])
    width = sum(len(row) == len(header) for row in rows) / len(rows)
    columns = zip(*(row for row in rows[1:] if len(row) == len(header)))
    longest = _longest(dict(zip(header, columns)))
    return Structure(kind=kind, delimiter=delimiter, quoted=quoted, fields=header, longest=longest), width


def _unnamed_table(head: str, field: str) -> Structure | None:
    """The table in a text whose name does not say so: its header has `field`, or many rows agree in their width."""
    for kind, delimiter in ((TSV, "\t"), (CSV, ","), (CSV, ";")):
        if delimiter not in head.partition("\n")[0] and not (field and field == head.partition("\n")[0].strip()):
            continue
        table, same_width = _table(kind, head, delimiter)
        if field and field in table.fields:
            return table
        lines = [line for line in head.split("\n")[: ROWS + 1] if line.strip()]
        is_wide = len(table.fields) >= (2 if kind == TSV else 3)
        if not is_wide or same_width < 1 or len(lines) <= SURE_ROWS or any(line[0].isspace() for line in lines):
            continue
        has_header = all(map(NAME.fullmatch, table.fields)) and len(set(table.fields)) == len(table.fields)
        if has_header or kind == TSV:  # TSV without a header: pairs of sentences, for example
            return table
    return None


def _rows(head: str, delimiter: str, *, quoted: bool) -> list[list[str]] | None:
    """The rows at the beginning of `head`, which may end inside a row; None if its quotes are not those of a table."""
    rows: list[list[str]] = []
    try:
        lines = head.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for row in csv_reader(lines, delimiter=delimiter, quoted=quoted):
            rows += [row] if row else []
            if len(rows) > ROWS:
                break
    except csv.Error as error:
        return rows if "unexpected end" in str(error) else None
    return rows[:-1] or rows


def csv_reader(lines: Iterable[str], *, delimiter: str, quoted: bool) -> "_csv.Reader":
    """A csv.reader of a table whose fields may be in quotes, or never are."""
    return csv.reader(lines, delimiter=delimiter, strict=quoted, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)


def end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where the match of `pattern` ends that begins at index `at`; `at` if there is none."""
    match = pattern.match(text, at)
    return match.end() if match else at


def _longest(texts: Mapping[str, Sequence[str]]) -> str:
    """The name whose texts are longest on average."""
    return max(texts, key=lambda name: sum(map(len, texts[name])) / max(1, len(texts[name])), default="")


def _warning(source: Source, structure: Structure, count: int) -> Words:
    """What is read as it is, and what to do if that is not meant."""
    more = f" and {count - 1:,} more" if count > 1 else ""
    what = f"{source.label}{more}: {structure.kind}, read as plain text"
    has_names = structure.kind in (JSON, JSON_LINES) or all(map(NAME.fullmatch, structure.fields))
    if structure.fields and has_names:
        names = "columns" if structure.kind in (CSV, TSV) else "fields"
        where = f"its {names} are {named(structure.fields)}"
        what = f"{what}; {where}; for the text of one alone, add "
        return Message(what, Option("data.field", structure.longest or "NAME"))
    if structure.kind in (CSV, TSV):
        what = f"{what}; for one column alone, add a first line with the names of the columns, and "
        return Message(what, Option("data.field", "NAME"))
    if structure.has_fields:
        return Message(f"{what}; for the text in one field of its objects, add ", Option("data.field", "NAME"))
    name = "FILE" if source.path is None else str(source.path)
    new = shell_word(Path(plain_name(Path(name))).stem + ".txt")
    python = "py" if WINDOWS else "python3"
    command = f'{python} -X utf8 -c "{COMMANDS[structure.kind]}" {shell_word(name)} > {new}'
    return f"{what}, with its markup; for its text alone: {command}"
