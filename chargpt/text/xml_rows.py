"""XML whose text is in attributes, as in sms.xml of Android and Posts.xml of Stack Exchange: its elements are records."""

import html
import re
from collections.abc import Iterator
from itertools import chain

from chargpt.text.kind import Head, Kind, Record, Structure, Text, blocks_in, structure_with

ATTRIBUTE = r"""([\w:.-]+)\s*=\s*("[^"]*"|'[^']*')"""
ELEMENT = re.compile(rf"<\w+(?:\s+{ATTRIBUTE})+\s*/>")
BETWEEN = re.compile(r">[^<>\w]*\w[^<>]*<")  # text between tags
HALF = re.compile(r"&#(5[5-7]\d{3});")  # of a character, which some programs write as two


def rows_in(text: Text) -> Iterator[Record]:
    """The elements without text."""
    for line, first, lines in blocks_in(text, re.compile(r"\s*<")):
        for fields in _fields_in("\n".join([first.string, *lines])):
            yield Record(line, fields)


def _fields_in(text: str) -> Iterator[dict[str, str]]:
    for element in ELEMENT.finditer(HALF.sub(lambda one: chr(int(one[1])), text)):
        found = ((name, html.unescape(value[1:-1])) for name, value in re.findall(ATTRIBUTE, element[0]))
        yield {name: value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for name, value in found}


def structure_of(kind: Kind, head: Head) -> Structure:
    """That of rows, or of XML with more text between its tags, which has another kind."""
    rows, between = [*_fields_in(head.start)], sum(map(len, BETWEEN.findall(head.start)))
    texts = {name: [row.get(name, "") for row in rows] for name in chain(*rows)}
    found = structure_with(texts, kind=XML_ROWS)
    return found if between < sum(map(len, texts.get(found.best, ()))) else Structure(kind=kind)


XML_ROWS = Kind(name="XML", records=rows_in)
