"""What a file is: no text at all, a table or JSON, a format with markup, or plain text; by its name and by how it begins.

Of a table, JSON lines and JSON, `data.field` selects the field to train on. The other formats have no reader: a warning names a
command that extracts their text. To add one, add a row to MARKUP; a file that is no text is a row of DOCUMENTS or MAGIC. An
exported chat is a row of CHATS, and chats.py reads it.
"""

import contextlib
import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from chargpt.config import DataConfig
from chargpt.errors import Message, Option, UserError, Words
from chargpt.files import WINDOWS
from chargpt.project import command, shell_word
from chargpt.terminal import shown
from chargpt.text.source import Source, byte_order_mark, plain_name

CHECKPOINT = "ckpt.pt"  # in the folder that nanoGPT's train.py writes
# How to get the text of a document. {file} is its name and {text} that of the text.
OFFICE = "in Word or LibreOffice, save it as plain text (UTF-8), or: pandoc {file} -t plain --wrap=none -o {text}"
DOCUMENTS = {  # by the end of the name
    ".pdf": "a PDF, not text; extract its text: pdftotext {file} {text}",
    ".docx": f"a Word document, not text; {OFFICE}",
    ".odt": f"an OpenDocument text, not plain text; {OFFICE}",
    ".rtf": f"rich text, not plain text; {OFFICE}",
    ".epub": "an e-book, not text; extract its text: pandoc {file} -t plain --wrap=none -o {text}",
    ".doc": "an old Office document, not text; in Word or LibreOffice, save it as plain text (UTF-8)",
}
# How a file begins: what it is, and what to do about it.
MAGIC = {
    b"%PDF-": DOCUMENTS[".pdf"],
    b"PK\x03\x04": "a zip archive (as .docx, .odt and .epub are), not text; unpack it, or save it as plain text",
    b"{\\rtf": DOCUMENTS[".rtf"],
    b"\xd0\xcf\x11\xe0": DOCUMENTS[".doc"],
    b"\x1f\x8b": "compressed with gzip; give it a name that ends in .gz, such as book.txt.gz",
    b"\xfd7zXZ": "compressed with xz; give it a name that ends in .xz, such as book.txt.xz",
    b"BZh": "compressed with bzip2; give it a name that ends in .bz2, such as book.txt.bz2",
    b"7z\xbc\xaf": "a 7z archive, not text; unpack it",
    b"SQLite format 3\0": "a database, not text; export its text first",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; give it a name that ends in .zst, such as book.txt.zst",
    b"\x89PNG": "a picture, not text; give a text file",
    b"\xff\xd8\xff": "a picture, not text; give a text file",
    b"\x7fELF": "a program, not text; give a text file",
}
TAR_OFFSET = 257  # of the mark in the header of a tar archive

HEAD = 2**16  # bytes at the beginning of a file that are looked at
MAX_NAMED = 12  # columns or fields that a message lists
MAX_NAME = 60  # characters of each of them
MAX_DEPTH = 6  # objects and lists in each other whose fields a message names
ROWS = 200  # rows of the head that are compared
SAME_WIDTH = 0.9  # share of the rows of a table that are as wide as the first; the others have a mistake
SURE_ROWS = 10  # rows of equal width in a file whose name does not say that it is a table
NAME = re.compile(r"[^\W\d][\w .()/%#-]{0,39}(?<!\.)")  # a column's name: it begins with a letter, and is not a sentence
BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)  # of JSON, and strings, in which they mean nothing
# Formats with fields, as messages name them.
JSON_LINES, JSON, CSV, TSV = "JSON lines", "JSON", "CSV", "TSV"
DELIMITERS = {CSV: ",;\t|", TSV: "\t"}
FIELDS = {".jsonl": JSON_LINES, ".ndjson": JSON_LINES, ".json": JSON, ".csv": CSV, ".tsv": TSV, ".tab": TSV}
FASTA = "FASTA"
FASTA_NAMES = (".fa", ".fasta", ".fna", ".faa", ".ffn")  # by which items are read as sequences


class Markup(NamedTuple):
    """A format of texts with marks in them."""

    name: str
    suffixes: tuple[str, ...]  # of the names of its files
    beginning: str  # a pattern of how it begins after white space
    code: str  # Python that prints its text


# Python runs each of these commands on every system. They have no double quotes, no exclamation marks and no pair of
# backslashes, which a shell would change.
READ = "open(sys.argv[1]).read()"
TAGS = "'(?si)<(script|style).*?</(script|style)>|<[^>]*>'"
BREAKS = "r'(?i)<br[^>]*>|</(p|div|h[1-6]|li|tr|pre)>'"  # tags of HTML that end a line


def _without(pattern: str) -> str:
    return f"import re, sys; print(re.sub(r'{pattern}', '', {READ}))"


def _lines(pattern: str) -> str:
    return rf"import re, sys; print('\n'.join(re.findall(r'{pattern}', re.sub(r'\{{[^}}]*\}}', '', {READ}))))"


# The times of subtitles, with what is before them in a cue; what is not shown; and tags, such as <i>, <00:01.500> and {{\an8}}.
CUES = _without(
    r"(?m)^(WEBVTT|NOTE|STYLE|REGION)\b(.*\n)+?\n|^(\S*\n)?.*-->.*$\n?|^[\d:.]+,[\d:.]+$\n?"
    r"|</?[A-Za-z\d][^>\n]*>|\{\W[^}\n]*\}"
)
HTML_TEXT = f"import html, re, sys; print(html.unescape(re.sub({TAGS}, '', re.sub({BREAKS}, '\\n', {READ}))))"
XML_TEXT = r"import sys, xml.etree.ElementTree as tree; print('\n'.join(tree.parse(sys.argv[1]).getroot().itertext()))"
LRC_TEXT = _without(r"(?m)^\[[a-z#]+:.*\]\s*$\n?|\[\d+:\d+[.:]?\d*\] ?|<\d+:\d+[.:]?\d*> ?")
MARKUP = (
    Markup("HTML", (".html", ".htm", ".xhtml"), r"(?i)(<\?xml[^>]*>\s*)?<(!doctype\s+html|html)\b", HTML_TEXT),
    Markup("XML", (".xml", ".ttml"), r"<\?xml\s", XML_TEXT),
    Markup("WebVTT", (".vtt",), r"WEBVTT(\s|$)", CUES),
    Markup("SRT", (".srt",), r"\d+[ \t]*\r?\n\d+:\d\d:\d\d[,.]\d{1,3} --> \d+:\d\d:\d\d", CUES),
    Markup("SBV subtitles", (".sbv",), r"\d+:\d\d:\d\d\.\d{3},\d+:\d\d:\d\d\.\d{3}\s", CUES),
    Markup("ASS subtitles", (".ass", ".ssa"), r"\[Script Info\]", _lines(r"(?m)^Dialogue:(?:[^,\n]*,){9}(.*)")),
    Markup("LRC", (".lrc",), r"(\[[a-z#]+:[^\]\n]*\]\s*)*\[\d+:\d\d\.\d{2,3}\]", LRC_TEXT),
    Markup("PGN", (".pgn",), r"\[(Event|Site|White|FEN) \"", _without(r"(?m)^\[\w+ .*\]\s*$\n?")),
    Markup("FASTQ", (".fastq", ".fq"), r"@[^\n]*\n[A-Za-z.]+\s*\n\+", _lines(r"(?m)^@.*\n(.*)\n\+")),
    Markup(FASTA, FASTA_NAMES, r">[^\n]*\n[A-Za-z*-]{10,}\s*\n([A-Za-z*-]+\s*\n|>)", ""),
)

# Exported chats: how each begins. Before a message, WhatsApp writes its date and time as the language of the phone has them; an
# iPhone puts both in brackets. Invisible marks of direction may be before them.
_DATE = r"\d{1,4}[^\d\n\[\]]{1,5}\d{1,2}[^\d\n]{1,5}\d{1,4}"
_TIME = r"\d{1,2}[:.]\d\d"
_HALF = r"[^\d\n:\[\],-]{0,10}?"  # of the day: PM, p. m., nachm.
_WHEN = rf"(?:{_DATE}[^\d\n]{{1,14}}{_TIME}{_HALF}|{_TIME}{_HALF}[^\d\n]{{1,3}}{_DATE})"
_ON_IPHONE = rf"\[{_DATE}[^\d\n]{{1,14}}{_TIME}(?:[:.]\d\d)?{_HALF}\] "
_IN_KOREAN = rf"(?=\d{{4}}(?:년|\.) ){_WHEN}, "
WHATSAPP_STAMP = re.compile(rf"(?m)^\ufeff?[\u200e-\u2069]*(?:{_ON_IPHONE}|{_WHEN} [-–] |{_IN_KOREAN})")
LOG_LEVEL = re.compile(r"(?i)\b(debug|info|notice|warn(ing)?|error|fatal|critical|trace)\b")  # in place of a name: a log
_FIELDS = r'(?:"(?:\\.|[^"\\])*"|[^{}"]){0,500}?'  # of an object of JSON; a text may have braces
WHATSAPP, TELEGRAM, DISCORD, MBOX = "WhatsApp chat", "Telegram chat", "Discord chat", "mailbox"
CHATS = {
    WHATSAPP: WHATSAPP_STAMP,
    TELEGRAM: re.compile(  # one chat, or all of an account
        r'\{\s*("about":\s*"Here is the data you requested|'
        rf'{_FIELDS}"type":\s*"(\w+_(chat|group|supergroup|channel)|saved_messages)"{_FIELDS}"messages":\s*\[)'
    ),
    DISCORD: re.compile(r'"?AuthorID"?,"?Author"?,"?Date"?,"?Content"?,'),
    MBOX: re.compile(r"From \S+ [^\n]*\d\d:\d\d:\d\d[^\n]*\d{4}[^\n]*\r?\n>?[A-Za-z][\w-]*: "),
}
AUTHOR, TEXT, MESSAGE = "author", "text", "message"  # the fields of a chat; a message is `Name: text`
CHAT_HEAD = 2**13  # characters at the beginning in which a chat is recognised


def chat_kind(head: str) -> str | None:
    """Which of CHATS begins with `head`; None if none does."""
    start = head[:CHAT_HEAD].lstrip("\ufeff \r\n")
    kind = next((kind for kind, beginning in CHATS.items() if beginning.match(start)), None)
    if kind != WHATSAPP:
        return kind
    names = re.findall(r"^([^:\n]{1,60}): ", WHATSAPP_STAMP.sub("", start), re.MULTILINE)
    return kind if names and not any(map(LOG_LEVEL.search, names)) else None


def refuse_checkpoint(path: Path) -> None:
    """Raise UserError, which says how to make a run of it, if `path` is a checkpoint of nanoGPT or its folder."""
    folder = path.parent if path.name == CHECKPOINT else path
    if (folder / CHECKPOINT).is_file():
        words = f"{command('import')} {shell_word(shown(folder))} --run NAME"
        raise UserError(f"{shown(path)}: a checkpoint of nanoGPT; make a run of it with {words}")


def binary_format(head: bytes, *, path: Path | None = None) -> str | None:
    """What a file that begins with `head` is, and what to do about it; None if it may be text. `path` is for a command."""
    path = path or Path("FILE")
    if head[TAR_OFFSET:].startswith(b"ustar"):
        return "a tar archive, not text; unpack it and give the folder"
    what = next((DOCUMENTS.get(path.suffix.lower(), what) for magic, what in MAGIC.items() if head.startswith(magic)), None)
    return what and what.format(file=shell_word(str(path)), text=shell_word(path.stem + ".txt"))


@dataclass(frozen=True, kw_only=True)
class Structure:
    """The format of a file, and how to read it."""

    kind: str
    delimiter: str = ""  # between the fields of a table
    quoted: bool = True  # whether a field of a table may be in quotes
    fields: tuple[str, ...] = ()  # the names of columns, or the paths of the fields of JSON
    longest: str = ""  # the field whose texts are longest, which is probably the one to train on

    @property
    def is_table(self) -> bool:
        """Whether it has rows and columns."""
        return self.kind in DELIMITERS

    @property
    def has_fields(self) -> bool:
        """Whether `data.field` selects a part of it."""
        return self.is_table or self.kind in (JSON, JSON_LINES, *CHATS)

    @property
    def tag(self) -> str:
        """A text that is equal for two files which are read in the same way. Fingerprints of runs contain it."""
        if self.is_table:
            return f"table {self.delimiter!r} {self.quoted}"
        return "True" if self.kind == JSON_LINES else self.kind


def fields_of(source: Source, head: bytes, config: DataConfig) -> Structure | None:
    """The structure by which `source`, which begins with `head`, is read; None if it is read as it is."""
    is_json_lines = config.format == "auto" and FIELDS.get(suffix_of(source)) == JSON_LINES
    if config.format == "fields" or is_json_lines:
        structure = recognise(suffix_of(source), _decoded(head, config), field=config.field)
        return structure if structure is not None and structure.has_fields else None
    kind = chat_kind(_decoded(head[: 4 * CHAT_HEAD], config)) if config.format == "auto" else None
    return Structure(kind=kind, fields=(AUTHOR, TEXT)) if kind else None


def read_head(source: Source) -> bytes:
    """The beginning of `source`. Raises UserError if it cannot be read."""
    return next(source.chunks(HEAD), b"")


def suffix_of(source: Source) -> str:
    """The end of the name of `source` in small letters, without that of its compression."""
    return "" if source.path is None else plain_name(source.path).suffix.lower()


def warnings_about(sources: Sequence[Source], config: DataConfig) -> list[Words]:
    """A line for each structured format that is read as it is, with what to do about it. Of the files whose names have the same
    end, the first one stands for all. Raises UserError."""
    if config.format == "text":
        return []
    by_suffix: dict[str, list[Source]] = {}
    for source in sources:
        by_suffix.setdefault(suffix_of(source), []).append(source)
    warnings = []
    for suffix, (first, *others) in by_suffix.items():
        head = read_head(first)
        is_read = fields_of(first, head, config) or (config.items and suffix in FASTA_NAMES)
        if not is_read and (structure := recognise(suffix, _decoded(head, config))):
            warnings.append(advice_on(first, structure, config, more=len(others)))
    return warnings


def named(fields: Iterable[str]) -> str:
    """The names of fields for a message, the first ones if there are many."""
    names = [name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}..." for name in fields]
    return ", ".join(names[:MAX_NAMED] + ["..."] * (len(names) > MAX_NAMED)) or "none"


def recognise(suffix: str, head: str, *, field: str = "") -> Structure | None:
    """The structure of a file whose name ends in `suffix` and which begins with `head`; None for plain text. A file whose name
    says nothing is a table with a column `field` if its first line has that name, or if `field` is a number."""
    start, kind = head.lstrip("\ufeff \t\r\n"), FIELDS.get(suffix)
    if kind is None:
        if chat := chat_kind(head):
            return Structure(kind=chat, fields=(AUTHOR, TEXT), longest=TEXT)
        by_name = (markup for markup in MARKUP if suffix in markup.suffixes)
        by_beginning = (markup for markup in MARKUP if re.match(markup.beginning, start))
        if markup := next(chain(by_name, by_beginning), None):
            return Structure(kind=markup.name)
    if kind in (JSON, JSON_LINES) or (kind is None and start[:1] in ("{", "[")):
        return _json(kind, start)
    return _table_in(kind, head, field)


def _decoded(head: bytes, config: DataConfig) -> str:
    mark, encoding = byte_order_mark(head)
    return head[len(mark) : HEAD].decode(encoding if mark else config.encoding, "ignore")


def _json(kind: str | None, start: str) -> Structure | None:
    """JSON or JSON lines, by the values at the `start` of a file; None if it is neither, unless its name says so."""
    values, rest, decoder, takes_lines = list[Any](), start, json.JSONDecoder(), False
    with contextlib.suppress(ValueError, RecursionError):
        while len(values) < ROWS and (rest := rest.lstrip()):
            value, at = decoder.raw_decode(rest)
            takes_lines |= isinstance(value, dict) and "\n" in rest[:at]  # an object takes several, whatever the name says
            values, rest = [*values, value], rest[at:]
    texts = texts_in(values if len(values) > 1 else _completed(start))
    if kind is None and not texts:
        return None
    kind = JSON if takes_lines else kind or (JSON_LINES if len(values) > 1 else JSON)
    return Structure(kind=kind, fields=tuple(texts), longest=longest(texts))


def _completed(start: str) -> object:
    """The JSON value that begins with `start`, up to the last object or list that is complete before its end, or None."""
    opened, end, closing = "", 0, ""  # what closes the objects and lists that are open
    for match in BRACKETS.finditer(start):
        if match[0] in ("{", "["):
            opened = ("}" if match[0] == "{" else "]") + opened
        elif opened.startswith(match[0]):
            end, opened = match.end(), opened[1:]
            closing = opened
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(start[:end] + closing)
    return None


def texts_in(value: object, *, depth: int = MAX_DEPTH) -> dict[str, list[str]]:
    """The path of each field in a JSON value or in the objects and lists in it, and the texts in this field. A list adds no
    name to a path. A list that holds text is the text of its field."""
    texts: dict[str, list[str]] = {}
    for record in value[:ROWS] if isinstance(value, list) else [value]:
        for name, inner in record.items() if isinstance(record, dict) else ():
            parts = [part for part in (inner if isinstance(inner, list) else [inner]) if isinstance(part, str)]
            deeper = {} if parts or depth == 1 else texts_in(inner, depth=depth - 1)
            for path, found in deeper.items():
                texts.setdefault(f"{name}.{path}", []).extend(found)
            if not deeper:
                texts.setdefault(name, []).extend(["".join(parts)] * bool(parts))
    return texts


def longest(texts: Mapping[str, Sequence[str]]) -> str:
    """The name whose texts are longest on average; empty if none has text."""
    return max(filter(texts.get, texts), key=lambda name: sum(map(len, texts[name])) / len(texts[name]), default="")


def _table_in(kind: str | None, head: str, field: str) -> Structure | None:
    """The table in `head`. Without a `kind`, which the name of its file tells, it must have `field`, or surely be a table."""
    delimiters = DELIMITERS[kind] if kind else "\t,;"
    if not kind and field.isdecimal() and " " in head.partition("\n")[0].strip():
        delimiters += " "  # a number may be that of a column of two, the first word of a line and the rest

    tables = [_table(kind, head, delimiter) for delimiter in delimiters]
    wide = [(table, width) for table, width in tables if len(table.fields) > 1] or tables
    fit = [(field in table.fields, width > SAME_WIDTH, table.delimiter != " ", width) for table, width in wide]
    table, same_width = wide[fit.index(max(fit))]
    if kind or (field and field in table.fields):
        return table
    if field.isdecimal():
        return table if same_width > SAME_WIDTH else None
    lines = [line for line in head.split("\n")[: ROWS + 1] if line.strip()]
    if same_width < 1 or len(lines) <= SURE_ROWS or any(line[0].isspace() for line in lines):
        return None
    if table.kind == TSV:  # with or without a header: pairs of sentences, for example
        return table if len(table.fields) > 1 else None
    has_names = all(map(NAME.fullmatch, table.fields)) and len(set(table.fields)) == len(table.fields) > 2
    return table if has_names else None


def _table(kind: str | None, head: str, delimiter: str) -> tuple[Structure, float]:
    """The table in `head`, if `delimiter` separates its fields, and the share of its rows that are as wide as the first."""
    lines, rows = re.split("\r\n|\r|\n", head), list[list[str]]()
    is_quoted = True
    try:
        for row in islice(csv_reader(lines, delimiter=delimiter, quoted=True), ROWS):
            rows.append(row)
    except csv.Error as error:
        is_quoted = "unexpected end" in str(error)  # `head` ends inside a field
        if not is_quoted:
            rows = [line.split(delimiter) for line in filter(None, lines[:ROWS])]
    rows = [row for row in rows if row]
    rows = rows[:-1] or rows or [[]]
    header = tuple(name.strip() for name in rows[0])
    alike = [row for row in rows if len(row) == len(header)]
    texts = dict(zip(header, zip(*alike[1:])))
    # Many programs write quotes into TSV as they are. In a CSV that is a mistake, which its reader reports with the line.
    quoted = is_quoted or delimiter != "\t"
    kind = kind or (CSV if delimiter in ",;" else TSV)
    table = Structure(kind=kind, delimiter=delimiter, quoted=quoted, fields=header, longest=longest(texts))
    return table, len(alike) / len(rows) if is_quoted == quoted else 0.0


def csv_reader(lines: Iterable[str], *, delimiter: str, quoted: bool) -> Any:
    """A csv.reader of a table whose fields may be in quotes, or never are. A space divides a line once, if it has one."""
    if delimiter == " ":
        halves = (line.strip().split(None, 1) for line in lines)
        lines, delimiter, quoted = ("\t".join([*half, ""][:2]) if half else "" for half in halves), "\t", False
    return csv.reader(lines, delimiter=delimiter, strict=quoted, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)


def advice_on(source: Source, structure: Structure, config: DataConfig, *, more: int = 0) -> Words:
    """What is read as it is, like so many `more` of its kind, and what to do if that is not meant."""
    setting = "data.items" if config.items else "data.field"
    what = f"{source.label}{f' and {more:,} more' if more else ''}: {structure.kind}, read as plain text"
    has_names = all(NAME.fullmatch(name) and (" " not in name or len(structure.fields) > 1) for name in structure.fields)
    if structure.is_table and not has_names:
        return Message(f"{what}; for one column alone, give its number: add ", Option(setting, 1))
    if structure.has_fields:
        where = f"its {'columns' if structure.is_table else 'fields'} are {named(structure.fields)}; " * bool(structure.fields)
        of = "one" if structure.fields else "a field"
        return Message(f"{what}; {where}for the text of {of} alone, add ", Option(setting, structure.longest or "NAME"))
    if structure.kind == FASTA:
        rename = "" if suffix_of(source) in FASTA_NAMES else "give it a name that ends in .fasta, and "
        items = f", with its headers; for its sequences alone, one item each, {rename}add "
        return Message(what, items, Option("data.items", "line"))
    name = "FILE" if source.path is None else str(source.path)
    new = shell_word(Path(plain_name(Path(name))).stem + "-text.txt")  # never the file itself, which a shell empties first
    code = next(markup.code for markup in MARKUP if markup.name == structure.kind)
    python = "py" if WINDOWS else "python3"
    return f'{what}, with its markup; for its text alone: {python} -X utf8 -c "{code}" {shell_word(name)} > {new}'
