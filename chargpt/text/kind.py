"""A kind of file: how it is recognised, how it is read, and what to advise. formats.py has the table of all kinds."""

import importlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

from chargpt.config import DataConfig
from chargpt.errors import UserError, Words
from chargpt.text.source import Source

# Stretches of text, at whose borders other scripts begin, and may go on without spaces; or a value that is JSON, or Python's.
STRETCH = re.compile(r"""(?s)^\s*[\[{]\s*[{\[]?\s*["'].*[\]}]\s*$|[!-~]+|[^\s!-~]+""")
NO_WORD = re.compile(r"[\d/@_#=\\<>{}\[\]|]|\w[.:]\w|[!-~]{40}")  # in what is no word, but a part of a date, a link or a hash
TEXT_NAME = re.compile(
    r"(?i)(?:\b|_)(?:text[eo]?|content|message|body|poem|verse|lyric|stor(?:y|ie)|sentence|quote|joke|review|comment|caption|"
    r"tweet|nachricht|mensaje|mensagem|messaggio|сообщение|текст|内容|消息)s?$"
)
# How a field is called that says who wrote a message, and not who is named in it; the first are those of other things too.
AUTHOR_NAMES = (
    r"(?i)^(?!.*mention).*(?:\b|_)(?:(?:sender|display|real|user|nick)?[ _]?name|role|who)$",
    r"(?i)^(?!.*mention).*(?:\b|_)(?:sender|author|speaker|from|user|nick|autore?|auteur|absender|expéditeur|remitente|remetente|"
    r"mittente|von|отправитель|автор|作者|发送者|送信者)$",
)
# What a character of such a part counts beside one of a word, how many count, and a name that says text. Guesses, not measured.
CODE, MOST_CODE, NAMED = 0.05, 20, 4
MAX_LINE = 2**28  # characters, which must fit into memory
Block = tuple[int, re.Match[str], list[str]]  # the number of its first line, what matches there, and the lines that follow
Noted = MutableMapping[str, list[int]]  # what a reader has done to a text, such as what it left out, and in which lines


@dataclass(frozen=True, kw_only=True)
class Head:
    """How a file begins, and what is known of it besides."""

    suffix: str = ""  # of its name, in small letters, without that of its compression
    text: str = ""
    field: str = ""  # the field that is asked for

    @cached_property
    def start(self) -> str:
        """Its text from the first character on."""
        return self.text.lstrip("\ufeff \t\r\n")


@dataclass(frozen=True, kw_only=True)
class Structure:
    """What a file turned out to be, and what its reader needs to know of it."""

    kind: "Kind"
    fields: tuple[str, ...] = ()  # the names of columns, or the paths of the fields of JSON
    best: str = ""  # the field with most text, which is probably the one to train on
    author: str = ""  # the field that says who wrote it, if one may do that
    delimiter: str = ""  # between the fields of a table
    is_sure: bool = True  # whether nobody need be asked before it is read so
    quoted: bool = True  # whether a field of a table may be in quotes
    escaped: bool = False  # whether a quote in such a field has a backslash before it


class Record(NamedTuple):
    """What a reader yields: the fields of one document, by name."""

    line: int  # where it begins, from 1
    fields: Any  # a mapping; anything else is a mistake of the file, which `records.py` reports
    prefix: str = ""  # the part of the path of a field that leads to this record


@dataclass(frozen=True)
class Text:
    """The text of a file, for the reader of its kind."""

    pieces: Iterable[str]  # with \n at the end of each line
    label: str  # names the file in errors
    structure: Structure
    wanted: Sequence[str]  # the fields that are asked for: that of the text, then those of labels and of data.where
    labels: Sequence[str]  # those of labels
    noted: Noted  # gets the lines of what is left out or changed


class Reads(Enum):
    """When a file of a kind is read by its fields. Until then it is read as it is, and a warning has the advice."""

    ALWAYS = "whatever its name is"
    NAMED = "if its name says what it is"
    ITEMS = "if its name says what it is, and the text is a list of items"
    ASKED = "if a field is asked for"


def _by_name_or_beginning(kind: "Kind", head: Head) -> Structure | None:
    is_it = head.suffix in kind.suffixes or (kind.begins and re.match(kind.begins, head.start))
    return Structure(kind=kind, fields=kind.fields, best=kind.fields[-1] if kind.fields else "") if is_it else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Kind:
    """A row of the table of readers."""

    name: str  # in messages
    suffixes: tuple[str, ...] = ()  # of the names of its files
    begins: str = ""  # a pattern of how its text begins after white space
    find: Callable[["Kind", Head], Structure | None] = _by_name_or_beginning  # the structure of a file that is of this kind
    records: Callable[[Text], Iterator[Record]] | None = None  # without it, files are read as they are, or not at all
    reads: Reads = Reads.ASKED
    fields: tuple[str, ...] = ()  # that all of its records have; the last one has the text
    field: str = ""  # which of them is read unless one is asked for; the default: data.field
    pattern_field: str = ""  # in which of them the pattern of a label is looked for; the default: in the text
    bytes_as: str = ""  # how its bytes beyond ASCII are decoded if each record names its own encoding
    one: str = "record"  # what a note calls a document of it
    note: str = ""  # what was read unasked, after their number; the default: which field
    # What to do in place of reading it as it is, which ends a warning; the default names its fields.
    advice: Callable[[Source, Structure, DataConfig], Words] | None = None


def reader(module: str, name: str, *given: object) -> Callable[..., Any]:
    """The function `name` of a module of this package, which is imported when it is called: most texts need none."""
    return lambda *more: getattr(importlib.import_module(f"chargpt.text.{module}"), name)(*given, *more)


def finder(module: str, begins: str) -> Callable[[Kind, Head], Structure | None]:
    """`structure_of` of such a module, for a file with a name of the kind, or that begins so."""
    found = reader(module, "structure_of")
    return lambda kind, head: found(kind, head) if head.suffix in kind.suffixes or re.match(begins, head.start) else None


def lines_in(pieces: Iterable[str], label: str) -> Iterator[str]:
    """The lines of a text in pieces, without their ends \\n; the last one is empty if the text ends with a line end. `label`
    names the text in errors. Raises UserError for a line that may not fit into memory."""
    held: list[str] = []
    for piece in pieces:
        first, *others = piece.split("\n")
        held.append(first)
        if sum(map(len, held)) > MAX_LINE:
            raise UserError(f"{label}: a line is longer than {MAX_LINE:,} characters; split it")
        if others:
            yield "".join(held)
            yield from others[:-1]
            held = others[-1:]
    yield "".join(held)


def blocks_in(text: Text, beginning: re.Pattern[str], *, after_blank: bool = False) -> Iterator[Block]:
    """The parts of a text that begin with a line like `beginning`."""
    block: Block | None = None
    for number, line in enumerate(lines_in(text.pieces, text.label), 1):
        if (match := beginning.match(line)) and not (after_blank and block and any(block[2][-1:])):
            if block:
                yield block
            block = number, match, []
        elif block:
            block[2].append(line)
    if block:
        yield block


def best_field(texts: Mapping[str, Sequence[str]]) -> str:
    """The field of these `texts` that has most text in all, and in most records; empty if none has any. What returns counts
    less, such as the words of a date or a form; and most of a link, a hash or a number is no text."""

    def merit(name: str) -> float:
        different, size = {*texts[name]}, 0.0
        counts = Counter(word for text in different for word in STRETCH.findall(text))
        codes = {*filter(NO_WORD.search, counts)}
        for word, count in counts.items():
            size += math.sqrt(count) * (CODE * min(MOST_CODE, len(word)) if word in codes else len(word))
        varied = min(len(different), 1 + len(counts) - len(codes))
        return size * math.sqrt(varied) * (NAMED if TEXT_NAME.search(name) else 1)

    return max((name for name in texts if any(texts[name])), key=merit, default="")


def structure_with(texts: Mapping[str, Sequence[str]], **more: Any) -> Structure:
    """The structure of a file whose fields have these `texts`: with the best one, and that which may say who wrote it, if one
    may. Names of people return."""
    best = best_field(texts)
    some = {name: [*filter(None, values)] for name, values in texts.items() if name != best}
    few = [name for name, of in some.items() if 1 < len({*of}) <= len(of) / 2 and len(of) >= len(texts.get(best, ())) / 2]
    found = (name for names, pattern in zip((few, some), AUTHOR_NAMES) for name in names if re.search(pattern, name))
    return Structure(fields=tuple(texts), best=best, author=next(found, "") if best else "", **more)
