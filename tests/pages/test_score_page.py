"""The page of `score --html`: complete, closed to the network, and safe for any text."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from chargpt.analysis.scored_text import Line, Summary, Total
from chargpt.pages.score_page import STEPS, score_page

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[2J\u202e\u200f\"'&\x85\u2028\ue000\n"


class Reader(HTMLParser):
    """The tags of a page, the text of its lines, and the bits that each line carries."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.lines: list[str] = []
        self.bits: list[str] = []
        self._depth = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list) -> None:
        self.tags.add(tag)
        given = dict(attributes)
        if given.get("class") == "t":
            self._depth = 1
            self.lines.append("")
            self.bits.append(given["data-bits"])
        elif self._depth:
            self._depth += 1

    def handle_endtag(self, tag: str) -> None:
        self._depth -= bool(self._depth)

    def handle_data(self, data: str) -> None:
        if self._depth:
            self.lines[-1] += data


def page_of(*texts: tuple[str, list[Line]], run: str = "poems") -> str:
    """The page of texts, each a label and its lines."""
    total = Total(characters=40, bytes=40, ids=40, bits=100.0)
    facts, totals = {"run": run, "step": 500, "context": 16, "stride": 8}, [(label, total) for label, _ in texts]
    summary = Summary(facts=facts, texts=totals, characters=41, bytes=41, sizes={"gzip -9": 50}, ngram=(3, 2.0))
    return score_page(texts, summary)


def lines(*texts: str) -> list[Line]:
    return [Line(number, text, np.linspace(0, 20, len(text))) for number, text in enumerate(texts, 1)]


def test_every_character_is_shown_with_its_bits():
    read = Reader(page_of(("a.txt", lines("The sea is calm.\n", "tonight\n"))))
    assert read.lines == ["The sea is calm.⏎", "The sea is calm.⏎", "tonight⏎"]  # first, the most surprising ones
    for text, bits in zip(read.lines, read.bits):
        assert len(text) == len(bits)
        steps = [STEPS.find(code) / 4 for code in bits if code != "+"]
        assert steps == pytest.approx(np.linspace(0, 20, len(bits))[: len(steps)], abs=0.13) and bits[-1] == "+"


def test_lines_are_numbered_as_in_their_text():
    content = page_of(*((label, [Line(7, f"the sea of {label}", np.linspace(0, 20, 12))]) for label in "ab"))
    places = [(' href="#l1"', "7"), (' href="#l2"', "7"), ("", "7"), ("", "7")]
    assert re.findall(r'<a class="n"(.*?)>(\d+)</a>', content) == places
    assert 'id="l1"' in content and 'id="l2"' in content


def test_a_hostile_text_is_shown_and_does_nothing():
    page = page_of((HOSTILE, lines(HOSTILE)), run=HOSTILE)
    assert not set(re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\ue000]", page))
    read = Reader(page)
    assert "img" not in read.tags and page.count("</script>") == page.count("<script>") == 1
    assert len(read.lines[-1]) == len(HOSTILE) and read.lines[-1].startswith("</script><img src=x onerror=alert(1)>␛[2J")


def test_a_long_text_is_cut_and_its_most_surprising_lines_are_those_of_the_whole_text(monkeypatch):
    monkeypatch.setattr("chargpt.pages.score_page.MAX_CHARACTERS", 20)
    texts = [("an expected line", 0.1), ("a surprising line", 9.0), ("ccc", 0.1)]
    content = page_of(("a", [Line(number, text, np.full(len(text), bits)) for number, (text, bits) in enumerate(texts, 1)]))
    assert "The first 16 characters of 36 are shown" in content
    # no hole in the text, although the last line would fit
    assert Reader(content).lines == ["a surprising line", "an expected line", "an expected line"]
    assert re.findall(r'<a class="n"(.*?)>(\d+)</a>', content) == [("", "2"), (' href="#l1"', "1"), ("", "1")]
