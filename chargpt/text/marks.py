"""Plain text with a mark of one's own between its documents or items, such as % or <|endoftext|>: the mark is their field."""

import re
from collections.abc import Iterator
from itertools import chain

from chargpt.canonical import canonical
from chargpt.text.kind import Kind, Record, Structure, Text, lines_in
from chargpt.text.source import Source, decoded

ANYWHERE = re.compile(r"<\|.+\|>|\f")  # marks that need no line of their own
CHUNK = 2**20  # bytes


def marked(source: Source, word: str, *, encoding: str) -> Structure | None:
    """The structure of a plain text in which the mark that `word` means occurs; None if it does not."""
    mark = re.escape(_mark(word))
    pattern = mark if ANYWHERE.fullmatch(_mark(word)) else rf"(?m)^[ \t]*{mark}[ \t]*\r?$"
    texts = (canonical(decoded(chunk, encoding)) for chunk in source.chunks(CHUNK) if mark)
    return Structure(kind=MARKED) if any(re.search(pattern, text) for text in texts) else None


def _mark(word: str) -> str:
    return canonical(word.encode("latin-1", "backslashreplace").decode("unicode_escape") if "\\" in word else word)


def _parts(text: Text) -> Iterator[Record]:
    """What is between two marks. A mark <|start...|> goes with <|end...|>."""
    word, (begins, held) = text.wanted[0], (1, list[str]())
    marks = {_mark(word), _mark(word).replace("<|end", "<|start")}
    between = re.compile("|".join(map(re.escape, marks))) if ANYWHERE.fullmatch(_mark(word)) else None
    for number, line in enumerate(chain(lines_in(text.pieces, text.label), [_mark(word)]), 1):
        first, *others = between.split(line) if between else [line] if canonical(line.strip(" \t")) not in marks else ["", ""]
        held.append(first)
        for part in others:
            if said := "\n".join(held).strip("\n"):
                yield Record(begins, {word: said})
            begins, held = number, [part]


MARKED = Kind(name="text with marks", records=_parts)
