"""Records to documents: the text in a named field of each, with its label."""

import dataclasses
import difflib
import json
import re
from collections.abc import Iterator
from typing import Any

from chargpt.config import DataConfig
from chargpt.errors import Option, UserError, Words
from chargpt.text.document import Label
from chargpt.text.formats import PLACES, UNITS, advice_on, field_in, named, read_head, structure_of, word_for
from chargpt.text.json_files import MISSING, joined, texts_in, value_of
from chargpt.text.kind import Kind, LeftOut, Record, Structure, Text, longest
from chargpt.text.source import Source, plain_name
from chargpt.text.tables import CSV, NAME, TSV

MAX_WITHOUT = 1000  # records at the beginning that may lack a field, before that is a mistake
KINDS = {int: "a number", float: "a number", bool: "true or false", dict: "an object"}
SURROGATE = re.compile("[\ud800-\udfff]")


def texts_in_records(
    source: Source, structure: Structure, config: DataConfig, *, pieces: Iterator[str], left_out: LeftOut
) -> Iterator[tuple[int, Label, str]]:
    """The line, the label and the text, which may be empty, of each record of a file. `config` says in which fields they are,
    and which records are left out. Raises UserError."""
    asked = _Asked(source, structure, config)
    of_file = Text(
        pieces=pieces,
        label=source.label,
        structure=structure,
        wanted=[field.name for field in asked.fields],
        labels=[part.name for part in asked.label if isinstance(part, _Field)],
        left_out=left_out,
    )
    assert structure.kind.records is not None, "only a kind with a reader is read by its fields"
    for record in structure.kind.records(of_file):
        text, label = asked.text.text_of(record), asked.label_of(record)
        if asked.kept and asked.kept.text_of(record, as_line=True) != asked.value:
            left_out.setdefault(f"records where {asked.kept.name} is not {asked.value}", []).append(record.line)
            continue
        if asked.pattern:
            label = (found(asked.pattern, record.fields.get(structure.kind.pattern_field, text)),)
        yield record.line, label, text
    for field in asked.fields:
        field.check_found()


class _Asked:
    """What is asked for of the records of a file: where their text and the parts of their label are, and which are kept."""

    def __init__(self, source: Source, structure: Structure, config: DataConfig) -> None:
        kind, self.pattern = structure.kind, config.label_pattern
        text = kind.field if kind.field and config.format != "fields" else config.field
        self.text = _Field(text, "data.items" if config.items else "data.field", source.label, kind)
        self.label = [
            _place(source, word) if word in PLACES else _Field(word, "data.label", source.label, kind)
            for word in ([] if self.pattern else config.label_fields)
        ]
        name, _, self.value = (" ".join(part.split()) for part in config.where.partition("="))
        self.kept = _Field(name, "data.where", source.label, kind) if name else None
        self.fields = [part for part in (self.text, *self.label, self.kept) if isinstance(part, _Field)]

    def label_of(self, record: Record) -> Label:
        """The label of a record, for which a pattern is looked for later."""
        return tuple([part if isinstance(part, str) else part.text_of(record, as_line=True) for part in self.label])


def found(pattern: re.Pattern[str], text: str) -> str:
    """What the groups of `pattern` match in `text` first, on one line; empty if it does not match."""
    match = pattern.search(text)
    return next(filter(None, (" ".join(group.split()) for group in (match.groups("") if match else ()))), "")


def _place(source: Source, word: str) -> str:
    """The name of a file, or of its folder. Raises UserError for a text that is in no file."""
    if source.path is None:
        use = "a field, or a regular expression such as 're:^K:(.*)'"
        raise UserError(f"data.label: {word!r} given, but {source.label} is no file; use {use}, or leave out data.label")
    path = source.path.absolute()
    return " ".join((plain_name(path).stem if word == "file" else path.parent.name).split())


def label_of_file(source: Source, config: DataConfig) -> Label:
    """The label of what a file without fields holds: its name or that of its folder, for which `config` asks. A pattern is
    looked for later. Raises UserError for another word, and for items that are a field."""
    if config.items not in ("", *UNITS):
        what = f"{source.label}: plain text has no field {field_in(config.items)!r}; give a table or JSON lines, or add "
        raise UserError(what, Option("data.items", "line"), " (or paragraph, or file)")
    if config.label_pattern:
        return ()
    if other := next((word for word in config.label_fields if word not in PLACES), None):
        what, content = f"data.label: {other!r} given, but ", read_head(source)
        if structure := structure_of(source, content, dataclasses.replace(config, format="fields")):
            raise UserError(what, advice_on(source, structure, config))
        use = "data.label=file, data.label=folder, or a regular expression such as 're:^K:(.*)'"
        raise UserError(f"{what}{source.label} is plain text, without fields; use {use}, or leave out data.label")
    return tuple(_place(source, word) for word in config.label_fields)


class _Field:
    """A named field of the records of a file. A record without it has an empty text; a file without it is a mistake."""

    def __init__(self, word: str, setting: str, label: str, kind: Kind) -> None:
        self.name, self._setting, self._label, self._kind = field_in(word), setting, label, kind
        self._without, self._is_found = 0, False  # records without text in the field, and whether one has it
        self._problem: UserError | None = None  # the first of them

    def text_of(self, found: Record, *, as_line: bool = False) -> str:
        """The text of a record, also of a number if it is to be on one line. Raises UserError."""
        line, record, prefix = found
        if not isinstance(record, dict):
            raise self._error(line, f'not a JSON object; write each record like {{"{self.name}": "its text"}}')
        value = value_of(record, self.name.removeprefix(prefix))
        if as_line and isinstance(value, (int, float)):  # true and false are numbers
            value = json.dumps(value)
        text = (joined(value) or None) if isinstance(value, list) else value
        if isinstance(text, (dict, int, float)):
            raise self._error(line, f"field {self.name!r} is {KINDS[type(text)]}; ", *self._advice(record, prefix))
        if isinstance(text, str):
            self._is_found = True
            if SURROGATE.search(text):
                raise self._error(line, f"half of a character in {self.name!r}, such as \\ud83d alone; delete it there")
            return " ".join(text.split()) if as_line else text
        self._without += 1
        if self._problem is None:
            what = f"no field {self.name!r}" if value is MISSING else f"no text in the field {self.name!r}"
            names = named(f"{prefix}{name}" for name in self._texts(record))
            self._problem = self._error(line, f"{what}, its fields are: {names}; ", *self._advice(record, prefix))
        if self._without >= MAX_WITHOUT:
            self.check_found()
        return ""

    def _error(self, line: int, *what: Words) -> UserError:
        return UserError(f"{self._label}: line {line:,}: ", *what)

    def check_found(self) -> None:
        """Raise UserError if no record had text in this field, and some record was there."""
        if self._problem is not None and not self._is_found:
            raise self._problem

    def _texts(self, record: dict[str, Any]) -> dict[str, list[str]]:
        return {name: [record.get(name, "")] for name in self._kind.fields} or texts_in(record)

    def _advice(self, record: dict[str, Any], prefix: str) -> list[Words]:
        name, texts = self.name, {f"{prefix}{name}": values for name, values in self._texts(record).items()}
        inside = {other: values for other, values in texts.items() if other.startswith(f"{name}.")}
        others = [other for other in texts if other != name][:MAX_WITHOUT]  # of a stranger's table with a million columns
        close = [other for other in others if other.endswith(f".{name}")] or difflib.get_close_matches(name, others, n=1)
        if close and not inside:
            return ["did you mean ", Option(self._setting, word_for(self._setting, close[0])), "?"]
        what_to_do = f"set {self._setting} to a field with text"
        if self._kind in (CSV, TSV) and not all(map(NAME.fullmatch, texts)):  # its first row has no names
            return [f"{what_to_do}, or its number, such as ", Option(self._setting, 1)]
        example = longest(inside) or (next(iter(texts), "") if self._setting == "data.label" else longest(texts))
        example = word_for(self._setting, example)
        return [f"{what_to_do}, for example ", Option(self._setting, example)] if example else [what_to_do]
