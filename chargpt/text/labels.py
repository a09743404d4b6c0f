"""Labels that a file itself gives: its name or that of its folder. Those of records are in `records.py`."""

import dataclasses

from chargpt.config import DataConfig
from chargpt.errors import Option, UserError
from chargpt.text.document import Label
from chargpt.text.formats import PLACES, UNITS, advice_on_file, field_in, read_head, structure_of
from chargpt.text.source import Source, plain_name


def place_of(source: Source, word: str) -> str:
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
        what = f"{source.label}: plain text, in which no line is {field_in(config.items)!r}; name a line between items, or add "
        raise UserError(what, Option("data.items", "line"), " (or paragraph, or file)")
    words = [] if config.label_pattern else config.label_fields
    if other := next((word for word in words if word not in PLACES), None):
        what, content = f"data.label: {other!r} given, but ", read_head(source)
        if structure := structure_of(source, content, dataclasses.replace(config, format="fields")):
            raise UserError(what, advice_on_file(source, structure, config))
        use = "data.label=file, data.label=folder, or a regular expression such as 're:^K:(.*)'"
        raise UserError(f"{what}{source.label} is plain text, without fields; use {use}, or leave out data.label")
    return tuple(place_of(source, word) for word in words)
