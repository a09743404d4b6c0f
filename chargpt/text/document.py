"""What is read: documents. Every reader yields them, and nothing else of a text reaches its encoder or its fingerprint."""

import functools
import hashlib
import json
from collections.abc import Iterable
from typing import NamedTuple

from chargpt.text.source import Source

TRAIN, VAL = 0, 1  # the splits
Label = tuple[str, ...]  # the fields of a label, empty without one


class Origin(NamedTuple):
    """Where a document begins."""

    source: Source
    line: int  # from 1
    is_record: bool = False  # a record of a table or a chat, for example; not a file


class Document(NamedTuple):
    """A text, with what is known of it beside its characters."""

    label: Label
    pieces: Iterable[str]  # of its text, to be read before the next document: a large text is never in memory
    origin: Origin


def spelled(label: Label) -> str:
    """A label on one line, and in ids: a field as it is, several as a line of CSV. Different labels are spelled differently."""
    if len(label) < 2:
        return "".join(label)
    return ",".join('"' + field.replace('"', '""') + '"' if {",", '"'} & {*field} else field for field in label)


@functools.lru_cache
def _as_json(label: Label, before: str) -> str:
    return json.dumps([label, before])


class Digest:
    """The hash of documents: their characters, where each begins and ends, their labels and splits. Nothing else is in it, so
    the same documents have the same one, whatever files they come from."""

    def __init__(self) -> None:
        self._content, self._marks = hashlib.sha256(), hashlib.sha256()

    def add(self, content: bytes) -> None:
        """Add a part of a document, in UTF-8, before the mark of this document."""
        self._content.update(content)

    def mark(self, split: int, size: int, *, label: Label = (), before: str = "") -> None:
        """Add the end of a document of `size` characters, and the separator `before` it."""
        self._marks.update(f"{split} {size} {_as_json(label, before)}\n".encode())

    def hexdigest(self) -> str:
        """SHA-256 of everything so far."""
        return hashlib.sha256(self._content.digest() + self._marks.digest()).hexdigest()
