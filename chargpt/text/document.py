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


_as_json = functools.lru_cache(json.dumps)  # of what many documents have in common


class Digest:
    """The hash of documents: their characters, where each begins and ends, their labels and splits. Nothing else is in it, so
    the same documents have the same one, whatever files they come from."""

    def __init__(self, encoding: str = "utf-8") -> None:
        """`encoding` makes UTF-8 of the characters."""
        self._encoding = encoding
        self._hashes = hashlib.sha256(), hashlib.sha256()  # of the characters, and of the ends of documents

    def add(self, piece: str) -> None:
        """Add a part of a document, before the end of this document."""
        self._hashes[0].update(piece.encode(self._encoding, "surrogatepass"))

    def end(self, split: int, size: int, *, label: Label = (), before: str = "") -> None:
        """Add the end of a document of `size` characters, and the separator `before` it."""
        self._hashes[1].update(f"{split} {size} {_as_json((label, before))}\n".encode(self._encoding, "surrogatepass"))

    def hexdigest(self) -> str:
        """SHA-256 of everything so far."""
        return hashlib.sha256(b"".join(each.digest() for each in self._hashes)).hexdigest()
