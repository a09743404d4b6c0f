"""Advice is data: rows, each with one condition and one sentence."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from chargpt.errors import Message, Option, Words


class Advice(NamedTuple):
    """What is said of something, `it`, in which something is found."""

    find: Callable[[Any], Any]  # what it does not find is false, or 0
    words: str  # with {it}, with {n}, what was found, and with {s}, the end of its plural
    setting: str = ""  # after these words
    value: str = ""  # of the setting, like `words`
    rest: str = ""  # after the setting


def advice_on(it: object, rows: Iterable[Advice]) -> Iterator[Words]:
    """What the rows that find something say."""
    for row in rows:
        if found := row.find(it):
            values = {"it": it, "n": found, "s": "s" * (found != 1)}
            words, value = (part.format_map(values) for part in (row.words, row.value))
            yield Message(words, Option(row.setting, value), row.rest) if row.setting else words
