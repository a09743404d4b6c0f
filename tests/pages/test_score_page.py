"""The page of `score --html`: complete, closed to the network, and safe for any text."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from chargpt.analysis.scored_text import Line, Summary, Total
from chargpt.pages import score_page
from chargpt.pages.score_page import STEPS, Page

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


def summary_of(label: str, run: str = "poems") -> Summary:
    total = Total(characters=40, bytes=40, ids=40, bits=100.0)
    facts = {"run": run, "step": 500, "context": 16, "stride": 8}
    return Summary(facts, [(label, total)], characters=41, bytes=41, sizes={"gzip -9": 50}, ngram=(3, 2.0))


def page_of(*lines: str, label: str = "a.txt", run: str = "poems") -> str:
    page = Page()
    page.begin(label)
    for number, text in enumerate(lines, 1):
        page.add(Line(number, text, np.linspace(0, 20, len(text))))
    return page.html(summary_of(label, run))


def test_every_character_is_shown_with_its_bits():
    read = Reader(page_of("The sea is calm.\n", "tonight\n"))
    assert read.lines[-2:] == ["The sea is calm.⏎", "tonight⏎"]
    assert read.lines[0] == "The sea is calm.⏎"  # among the most surprising ones
    for text, bits in zip(read.lines, read.bits):
        assert len(text) == len(bits)
        steps = [STEPS.find(code) / 4 for code in bits if code != "+"]
        assert steps == pytest.approx(np.linspace(0, 20, len(bits))[: len(steps)], abs=0.13) and bits[-1] == "+"


def test_lines_are_numbered_as_in_their_text():
    page = Page()
    for label in ("a.txt", "b.txt"):
        page.begin(label)
        page.add(Line(7, f"the sea of {label}\n", np.linspace(0, 20, 17)))
    content = page.html(summary_of("a.txt"))
    assert re.findall(r'<a class="n"(.*?)>(\d+)</a>', content) == [
        (' href="#l2"', "7"),
        (' href="#l1"', "7"),
        ("", "7"),
        ("", "7"),
    ]
    assert 'id="l1"' in content and 'id="l2"' in content


def test_a_hostile_text_is_shown_and_does_nothing():
    page = page_of(HOSTILE, label=HOSTILE, run=HOSTILE)
    assert not set(re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\ue000]", page))
    read = Reader(page)
    assert "img" not in read.tags and page.count("</script>") == page.count("<script>") == 1
    assert len(read.lines[-1]) == len(HOSTILE) and read.lines[-1].startswith("</script><img src=x onerror=alert(1)>␛[2J")


def test_a_long_text_is_cut_and_the_page_says_so(monkeypatch):
    monkeypatch.setattr(score_page, "MAX_CHARACTERS", 20)
    content = page_of("a" * 15, "b" * 10, "c" * 3)
    assert "The first 15 characters of 28 are shown" in content
    assert "ccc" not in content  # no hole in the text, although this line would fit


def test_the_most_surprising_lines_are_those_of_the_whole_text(monkeypatch):
    monkeypatch.setattr(score_page, "MAX_CHARACTERS", 20)
    page = Page()
    page.begin("a")
    for number, (text, bits) in enumerate([("an expected line", 0.1), ("a surprising line", 9.0)], 1):
        page.add(Line(number, text, np.full(len(text), bits)))
    content = page.html(summary_of("a"))
    assert Reader(content).lines == ["a surprising line", "an expected line", "an expected line"]
    assert re.findall(r'<a class="n"(.*?)>(\d+)</a>', content) == [("", "2"), (' href="#l1"', "1"), ("", "1")]
