"""JSON lines: one document in each line, in a named field of a JSON object."""

import json
from collections.abc import Iterable, Iterator

from chargpt.terminal import UserError

KINDS = {int: "a number", float: "a number", bool: "true or false", list: "a list", dict: "an object", type(None): "null"}
MAX_LINE = 2**28  # characters, which must fit into memory


def json_documents(pieces: Iterable[bytes | str], *, field: str, label: str) -> Iterator[tuple[int, str]]:
    """The number of each line of the text that `pieces` form, and the text in its `field`. Empty lines are skipped.

    `label` names the text in errors. Raises UserError.
    """
    for number, line in enumerate(_lines(pieces, label), 1):
        if line and not line.isspace():
            yield number, _document(line, field, where=f"{label}: line {number:,}")


def _document(line: str, field: str, where: str) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        what_to_do = "give one JSON object in each line, or a name that ends in .txt"
        raise UserError(f"{where}: not JSON ({error}); {what_to_do}") from None
    if not isinstance(record, dict):
        raise UserError(f"{where}: not a JSON object; give an object with the text in a field in each line")
    if field not in record:
        fields = ", ".join(map(str, record)) or "none"
        raise UserError(f"{where}: no field {field!r}, its fields are: {fields}; name the one with the text in data.field")
    text = record[field]
    if not isinstance(text, str):
        raise UserError(f"{where}: field {field!r} is {KINDS[type(text)]}; name one with text in data.field")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{where}: half a surrogate pair at character {error.start:,} of {field!r}; correct that line"
        ) from None
    return text


def _lines(pieces: Iterable[bytes | str], label: str) -> Iterator[str]:
    """The lines of a text that comes in pieces, without their ends. Only \\n ends a line, as JSON lines define it.

    Raises UserError for a line that may not fit into memory.
    """
    held: list[str] = []
    for piece in pieces:
        first, *others = (piece if isinstance(piece, str) else piece.decode()).split("\n")
        held.append(first)
        if sum(map(len, held)) > MAX_LINE:
            raise UserError(f"{label}: a line is longer than {MAX_LINE:,} characters; split it")
        for other in others:
            yield "".join(held)
            held = [other]
    yield "".join(held)
