"""Records to documents: the text in a named field of each, with its label."""

import dataclasses
import difflib
import json
import re
from collections.abc import Iterator
from typing import Any

from chargpt.config import DataConfig
from chargpt.errors import Option, UserError, Words
from chargpt.text.document import Document, Label, Origin
from chargpt.text.formats import PLACES, advice_on, field_in, named, read_head, structure_of, word_for
from chargpt.text.json_files import MISSING, joined, texts_in, value_of
from chargpt.text.kind import LeftOut, Structure, Text, longest
from chargpt.text.source import Source, plain_name
from chargpt.text.tables import CSV, NAME, TSV

MAX_WITHOUT = 1000  # records at the beginning that may lack a field, before that is a mistake
KINDS = {int: "a number", float: "a number", bool: "true or false", dict: "an object"}
SURROGATE = re.compile("[\ud800-\udfff]")


def documents_in(
    source: Source, structure: Structure, config: DataConfig, *, pieces: Iterator[str], left_out: LeftOut
) -> Iterator[Document]:
    """A document for each record of the text that `pieces` form, its text may be empty. `config` says which field it is in,
    which are its label, and which records are left out. Raises UserError."""
    kind, setting = structure.kind, "data.items" if config.items else "data.field"
    text = kind.field if kind.field and config.format != "fields" else config.field
    words = [] if config.label_pattern else config.label_fields
    name, _, wanted = (" ".join(part.split()) for part in config.where.partition("="))

    def field(word: str, setting: str) -> _Field:
        return _Field(field_in(word), setting, source.label, structure)

    of_text, kept = field(text, setting), field(name, "data.where")
    parts = [_place(source, word) if word in PLACES else field(word, "data.label") for word in words]
    asked = [part for part in [of_text, *parts, *[kept] * bool(name)] if isinstance(part, _Field)]
    names, labels = [one.name for one in asked], [one.name for one in parts if isinstance(one, _Field)]
    of_file = Text(pieces=pieces, label=source.label, structure=structure, wanted=names, labels=labels, left_out=left_out)
    assert kind.records is not None, "only a kind with a reader is read by its fields"
    for record in kind.records(of_file):
        said = of_text.text_of(*record)
        label = tuple(part if isinstance(part, str) else " ".join(part.text_of(*record).split()) for part in parts)
        if name and " ".join(kept.text_of(*record).split()) != wanted:
            left_out.setdefault(f"records where {name} is not {wanted}", []).append(record.line)
            continue
        if config.label_pattern:
            label = (found(config.label_pattern, record.fields[kind.pattern_field] if kind.pattern_field else said),)
        yield Document(label, [said], Origin(source, record.line, is_record=True))
    for one in asked:
        one.check_found()


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
    looked for later. Raises UserError for another word."""
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

    def __init__(self, name: str, setting: str, label: str, structure: Structure) -> None:
        self.name, self._setting, self._label, self._kind = name, setting, label, structure.kind
        self._without, self._is_found = 0, False  # records without text in the field, and whether one has it
        self._problem: UserError | None = None  # the first of them

    def text_of(self, line: int, record: object, prefix: str) -> str:
        """The text of a `record` to which the `prefix` of the name leads. Raises UserError."""
        where = f"{self._label}: line {line:,}"
        if not isinstance(record, dict):
            raise UserError(f'{where}: not a JSON object; write each record like {{"{self.name}": "its text"}}')
        value = value_of(record, self.name.removeprefix(prefix))
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
            names = named(f"{prefix}{name}" for name in self._texts(record))
            self._problem = UserError(f"{where}: {what}, its fields are: {names}; ", *self._advice(record, prefix))
        if self._without >= MAX_WITHOUT:
            self.check_found()
        return ""

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
