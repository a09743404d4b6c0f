"""Plain text with a mark of one's own between its documents or items, such as % or <|endoftext|>: the mark is their field."""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain

from chargpt.canonical import canonical
from chargpt.text.kind import Kind, Record, Structure, Text, lines_in
from chargpt.text.source import Source, decoded

ANYWHERE = re.compile(r"<\|[^|\n]+\|>|</s>|\f")  # marks that need no line of their own
# Lines that nobody reads as text, code or a comment; how often one returns at least, and in how many lines once, to be told.
DIVIDER = re.compile(
    r"[%~§¶†⁂❦❧☙◆]{1,2}|([-*=~_+#•·§◆])(?: *\1){2,}|</?(?:s|doc|text|poem|song|story|article|page|hr|[eb]os|sep|end)(?: ?/)?>"
    r"|\[(?:[EB]OS|SEP|END|BREAK|PAGE)\]|\W{2,} ?(?i:end|break|page|cut)(?: here)? ?\W{2,}"
)
OFTEN, LONGEST_DOCUMENT = 5, 200
CHUNK = 2**20  # bytes


def marked(source: Source, word: str, *, encoding: str) -> Structure | None:
    """The structure of a plain text in which the mark that `word` means occurs; None if it does not."""
    mark = re.escape(_mark(word))
    pattern = mark if ANYWHERE.fullmatch(_mark(word)) else rf"(?m)^[ \t]*{mark}[ \t]*\r?$"
    texts = (canonical(decoded(chunk, encoding)) for chunk in source.chunks(CHUNK) if mark)
    return Structure(kind=MARKED) if any(re.search(pattern, text) for text in texts) else None


def divider_in(text: str) -> str:
    """A mark that may be between documents, since it returns again and again; empty without one."""
    lines, found = text.count("\n"), Counter(ANYWHERE.findall(text))
    found.update(line for line in map(str.strip, text.split("\n")) if DIVIDER.fullmatch(line))
    often = [mark for mark, count in found.most_common() if count >= max(OFTEN, lines / LONGEST_DOCUMENT)]
    starts = {_start_of(mark): mark for mark in often if _start_of(mark) != mark}
    return next((starts.get(mark, mark).replace("\f", "\\f") for mark in often), "")


def _mark(word: str) -> str:
    return canonical(word.encode("latin-1", "backslashreplace").decode("unicode_escape") if "\\" in word else word)


def _start_of(mark: str) -> str:
    """The mark that goes with one such as <|end...|> or </s>."""
    return mark.replace("<|end", "<|start").replace("</", "<")


def _parts(text: Text) -> Iterator[Record]:
    """What is between two marks."""
    word, (begins, held) = text.wanted[0], (1, list[str]())
    marks = {_mark(word), _start_of(_mark(word))}
    between = re.compile("|".join(map(re.escape, marks))) if ANYWHERE.fullmatch(_mark(word)) else None
    for number, line in enumerate(chain(lines_in(text.pieces, text.label), [_mark(word)]), 1):
        first, *others = between.split(line) if between else [line] if canonical(line.strip(" \t")) not in marks else ["", ""]
        held.append(first)
        for part in others:
            if said := "\n".join(held).strip("\n"):
                yield Record(begins, {word: said})
            begins, held = number, [part]


MARKED = Kind(name="text with marks", records=_parts)
