"""JSON lines, and JSON: one document in each record, in a named field of a JSON object.

A name such as `data.text` is that of a field, or of the field `text` in the object `data`.
"""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from chargpt.errors import Option, UserError, Words
from chargpt.text.records import MAX_LINE, decoded, labelled, lines_in
from chargpt.text.structure import MAX_COMPARED, end_of, named

MISSING = object()  # in place of the value of a field that a record does not have
KINDS = {int: "a number", float: "a number", bool: "true or false", list: "a list", dict: "an object", type(None): "null"}
MAX_DEPTH = 4  # objects in objects whose fields a message names
BETWEEN = re.compile(r"[\s,\[\]]*")  # what is between the records of a list


def json_documents(
    pieces: Iterable[bytes | str], *, field: str, label: str, labels: Sequence[str] = (), setting: str = "data.field"
) -> Iterator[tuple[int, str]]:
    """The number of each line of the text that `pieces` form, and the text in its `field`. Empty lines are skipped.

    The values of the fields `labels` come before the text, see `labelled`. `label` names the text in errors, and `setting`
    what `field` was given with. Raises UserError.
    """
    for number, line in enumerate(lines_in(decoded(pieces), label), 1):
        if line and not line.isspace():
            where = f"{label}: line {number:,}"
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                what_to_do = "give one JSON object in each line, or a name that ends in .txt"
                raise UserError(f"{where}: not JSON ({error}); {what_to_do}") from None
            yield number, _labelled_text_of(record, field, labels, where=where, setting=setting)


def json_list_documents(
    pieces: Iterable[bytes | str], *, field: str, label: str, labels: Sequence[str] = (), setting: str = "data.field"
) -> Iterator[tuple[int, str]]:
    """The line where each object of a JSON list begins, and the text in its `field`.

    The list may also be the value of a key in an object, as in {"poems": [...]}, and objects need not be in a list.
    `labels`, `label` and `setting` are those of `json_documents`. Raises UserError.
    """
    unread, text, at, line, wanted = decoded(pieces), "", 0, 1, 1
    decoder = json.JSONDecoder()
    while True:
        start = end_of(BETWEEN, text, at)
        line += text.count("\n", at, start)
        at = start
        where = f"{label}: line {line:,}"
        problem = ""
        if at < len(text):
            try:
                record, end = decoder.raw_decode(text, at)
            except (ValueError, RecursionError) as error:
                problem = getattr(error, "msg", str(error))
            else:
                for inner in _inner_records(record, field):
                    yield line, _labelled_text_of(inner, field, labels, where=where, setting=setting)
                line += text.count("\n", at, end)
                at, wanted = end, 1
                continue
        text, at = text[at:], 0
        if len(text) > MAX_LINE:
            raise UserError(f"{where}: not JSON ({problem}), or a record longer than {MAX_LINE:,} characters; correct it")
        more = list(islice(unread, wanted))
        if not more:
            if problem:
                raise UserError(f"{where}: not JSON ({problem}); give a list of objects, or a name that ends in .txt")
            return
        text, wanted = text + "".join(more), 2 * wanted  # a long record is tried again only when it is twice as long


def _inner_records(record: object, field: str) -> list[object]:
    """The objects in the only list of objects that `record`, which has no `field`, has in a field; otherwise `record` alone."""
    values = record.values() if isinstance(record, dict) and _value_of(record, field) is MISSING else []
    lists = [value for value in values if isinstance(value, list) and value and all(isinstance(v, dict) for v in value)]
    return lists[0] if len(lists) == 1 else [record]


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


def _texts_in(record: dict[str, Any], *, depth: int = MAX_DEPTH) -> dict[str, str]:
    """The texts in `record` and in the objects in it, by name or path."""
    texts: dict[str, str] = {}
    for name, value in record.items():
        if isinstance(value, str):
            texts[name] = value
        elif isinstance(value, dict) and depth > 1:
            texts |= {f"{name}.{inner}": text for inner, text in _texts_in(value, depth=depth - 1).items()}
    return texts


def _labelled_text_of(record: object, field: str, labels: Sequence[str], where: str, *, setting: str) -> str:
    text, values = _text_of(record, field, where, setting=setting), list[str]()
    for name in labels:
        value = _value_of(record, name) if isinstance(record, dict) else MISSING
        if isinstance(value, (int, float, type(None))):  # true and false are numbers
            values.append("" if value is None else json.dumps(value))
        else:
            values.append(_text_of(record, name, where, setting="data.label"))
    return labelled(text, values)


def _text_of(record: object, field: str, where: str, *, setting: str) -> str:
    if not isinstance(record, dict):
        raise UserError(f"{where}: not a JSON object; give an object with the text in a field in each line")
    text = _value_of(record, field)
    if text is MISSING:
        texts = _texts_in(record)
        names = list(dict.fromkeys([*record, *texts]))
        inner = [name for name in texts if name.endswith(f".{field}")]
        close = inner[:1] or difflib.get_close_matches(field, names[:MAX_COMPARED], n=1)
        longest = max(texts, key=lambda name: len(texts[name]), default="")
        what_to_do: list[Words] = [f"name the one with the text in {setting}"]
        what_to_do += [", for example ", Option(setting, longest)] if longest else []
        what_to_do = ["did you mean ", Option(setting, close[0]), "?"] if close else what_to_do
        first = field.partition(".")[0]
        if "." in field and isinstance(record.get(first), list):
            what_to_do = [f"{first!r} is a list; write the texts in it into one field first"]
        raise UserError(f"{where}: no field {field!r}, its fields are: {named(names)}; ", *what_to_do)
    if not isinstance(text, str):
        inside = _texts_in(text) if isinstance(text, dict) else {}
        what_to_do = [f"name one with text in {setting}"]
        if inside:
            longest = max(inside, key=lambda name: len(inside[name]))
            what_to_do += [", for example ", Option(setting, f"{field}.{longest}")]
        raise UserError(f"{where}: field {field!r} is {KINDS[type(text)]}; ", *what_to_do)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{where}: half a surrogate pair at character {error.start:,} of {field!r}; correct that line"
        ) from None
    return text
