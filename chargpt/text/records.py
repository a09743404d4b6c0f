"""Records to documents: the text in a named field of each, with its label."""

import json
import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from chargpt.canonical import canonical, stored_as
from chargpt.config import DataConfig
from chargpt.errors import Option, UserError, Words, closest
from chargpt.text.document import Document, Label, Origin
from chargpt.text.formats import PLACES, field_in, named, word_for
from chargpt.text.json_records import MISSING, join_texts, texts_in, value_of
from chargpt.text.kind import Noted, Record, Structure, Text, best_field
from chargpt.text.labels import place_of
from chargpt.text.messages import spoken
from chargpt.text.source import Source
from chargpt.text.tables import CSV, TSV, are_names

MAX_WITHOUT = 1000  # records at the beginning that may lack a field, before that is a mistake
KINDS = {int: "a number", float: "a number", bool: "true or false", dict: "an object"}
ON_A_LINE = ("data.label", "data.where", "data.author")  # settings that name a field whose text is on one line, or a number
SURROGATE = re.compile("[\ud800-\udfff]")


def documents_in(
    source: Source, structure: Structure, config: DataConfig, *, pieces: Iterable[str], noted: Noted
) -> Iterator[Document]:
    """The records of a file that `config` keeps, with their texts, which may be empty, and labels. Raises UserError."""
    kind, pattern, field = structure.kind, config.label_pattern, partial(_Field, source=source, structure=structure)
    assert kind.records is not None, "only a kind with a reader is read by its fields"
    where, _, value = (" ".join(part.split()) for part in config.where.partition("="))
    name = kind.field if kind.field and config.format != "fields" else config.field
    text = field(name, "data.items" if config.items else "data.field")
    author = [field(config.author, "data.author")] * bool(config.author)
    words = [] if pattern else config.label_fields
    parts = [place_of(source, word) if word in PLACES else field(word, "data.label") for word in words]
    of_label = [part for part in parts if isinstance(part, _Field)]
    kept = [field(where, "data.where")] * bool(where)
    fields = [text, *author, *of_label, *kept]
    wanted, labels = [each.name for each in fields], [each.name for each in of_label]
    for record in kind.records(Text(pieces, source.label, structure, wanted, labels, noted)):
        said = text.text_of(record)
        said = spoken(author[0].text_of(record), said) if author else said
        label: Label = tuple([part if isinstance(part, str) else part.text_of(record) for part in parts])
        if pattern:
            label = (found(pattern, record.fields.get(kind.pattern_field, said)),)
        if all(canonical(each.text_of(record)) == canonical(value) for each in kept):
            yield Document(label, (said,), Origin(source, record.line, is_record=True))
        else:
            noted.setdefault(f"records where {kept[0].name} is not {value}, left out", []).append(record.line)
    for each in fields:
        each.check_found()


def found(pattern: re.Pattern[str], text: str) -> str:
    """What the groups of `pattern` match in `text` first, on one line; empty if it does not match. Equivalent letters match."""
    match = re.search(canonical(pattern.pattern), canonical(text), pattern.flags)
    return next(filter(None, (" ".join(group.split()) for group in (match.groups("") if match else ()))), "")


class _Field:
    """A named field of the records of a file. A record without it has an empty text; a file without it is a mistake."""

    def __init__(self, word: str, setting: str, *, source: Source, structure: Structure) -> None:
        self.name, self._setting = stored_as(field_in(word), structure.fields), setting
        self._label, self._kind, self._in_folder = source.label, structure.kind, source.in_folder
        self._is_line = setting in ON_A_LINE
        self._without, self._is_found = 0, False  # records without text in the field, and whether one has it
        self._problem: UserError | None = None  # the first of them

    def text_of(self, found: Record) -> str:
        """The text of a record. Raises UserError."""
        line, record, prefix = found
        if not isinstance(record, dict):
            number, like = best_field(texts_in([record])), f'write each record like {{"{self.name}": "its text"}}'
            part = ["for a part of it, give its number, such as ", Option(self._setting, number)]
            raise self._error(line, "not a JSON object; ", *(part if number else [like]))
        value = value_of(record, self.name.removeprefix(prefix))
        if self._is_line and isinstance(value, (int, float)):  # true and false are numbers
            value = json.dumps(value)
        text = (join_texts(value) or None) if isinstance(value, list) else value
        if isinstance(text, str):
            self._is_found = True
            if not text.isascii() and SURROGATE.search(text):
                raise self._error(line, f"half of a character in {self.name!r}, such as \\ud83d alone; delete it there")
            return " ".join(text.split()) if self._is_line else text
        if isinstance(text, (dict, int, float)):
            raise self._error(line, f"field {self.name!r} is {KINDS[type(text)]}; ", *self._advice(record, prefix))
        self._without += 1
        if self._problem is None:
            what = f"no field {self.name!r}" if value is MISSING else f"no text in the field {self.name!r}"
            names = named(texts := self._texts(record, prefix), best=best_field(texts))
            others: list[Words] = [", or leave this file out by ", Option("data.pattern")] * self._in_folder
            self._problem = self._error(line, f"{what}, its fields are: {names}; ", *self._advice(record, prefix), *others)
        if self._without >= MAX_WITHOUT:
            self.check_found()
        return ""

    def _error(self, line: int, *what: Words) -> UserError:
        return UserError(f"{self._label}: line {line:,}: ", *what)

    def check_found(self) -> None:
        """Raise UserError if no record had text in this field, and some record was there."""
        if self._problem is not None and not self._is_found:
            raise self._problem

    def _texts(self, record: dict[str, Any], prefix: str) -> dict[str, list[str]]:
        texts = {name: [record.get(name, "")] for name in self._kind.fields} or texts_in(record)
        return {f"{prefix}{name}": values for name, values in texts.items()}

    def _advice(self, record: dict[str, Any], prefix: str) -> list[Words]:
        name, texts = self.name, self._texts(record, prefix)
        inside = {other: values for other, values in texts.items() if other.startswith(f"{name}.")}
        others = [other for other in texts if other != name][:MAX_WITHOUT]  # of a stranger's table with a million columns
        close = [other for other in others if other.endswith(f".{name}")] or [*filter(None, [closest(name, others)])]
        if close and not inside:
            return ["did you mean ", Option(self._setting, word_for(self._setting, close[0])), "?"]
        what_to_do = f"set {self._setting} to a field with text"
        if self._kind in (CSV, TSV) and not are_names(texts):  # its first row has no names
            return [f"{what_to_do}, or its number, such as ", Option(self._setting, 1)]
        example = best_field(inside) or (next(iter(texts), "") if self._setting == "data.label" else best_field(texts))
        example = word_for(self._setting, example)
        return [f"{what_to_do}, for example ", Option(self._setting, example)] if example else [what_to_do]
