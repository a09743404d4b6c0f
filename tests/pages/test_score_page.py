"""The page of `score --html`: complete, closed to the network, and safe for any text."""

import re

import numpy as np
import pytest
from scripts import Elements, needs_node, run_script

from chargpt.analysis.scored_text import Line, Summary, Total
from chargpt.pages.score_page import STEPS, score_page

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[2J\u202e\u200f\"'&\x85\u2028\ue000\n"


def shown(page: str) -> list[tuple[str, str]]:
    """The lines of a page: the text, and the bits that it carries."""
    found = [one for one in Elements(page).all if one.attributes.get("class") == "t"]
    return [(one.text, one.attributes["data-bits"]) for one in found]


def page_of(*texts: tuple[str, list[Line]], run: str = "poems") -> str:
    """The page of texts, each a label and its lines."""
    total = Total(characters=40, bytes=40, ids=40, bits=100.0)
    facts, totals = {"run": run, "step": 500, "context": 16, "stride": 8}, [(label, total) for label, _ in texts]
    summary = Summary(facts=facts, texts=totals, characters=41, bytes=41, sizes={"gzip -9": 50}, ngram=(3, 2.0))
    return score_page(texts, summary)


def lines(*texts: str) -> list[Line]:
    return [Line(number, text, np.linspace(0, 20, len(text))) for number, text in enumerate(texts, 1)]


def test_every_character_is_shown_with_its_bits():
    found = shown(page_of(("a.txt", lines("The sea is calm.\n", "tonight\n"))))
    assert [text for text, _ in found] == ["The sea is calm.⏎", "The sea is calm.⏎", "tonight⏎"]  # the most surprising first
    for text, bits in found:
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
    last, _ = shown(page)[-1]
    assert "img" not in Elements(page).tags and page.count("</script>") == page.count("<script>") == 1
    assert len(last) == len(HOSTILE) and last.startswith("</script><img src=x onerror=alert(1)>␛[2J")


def test_a_long_text_is_cut_and_its_most_surprising_lines_are_those_of_the_whole_text(monkeypatch):
    monkeypatch.setattr("chargpt.pages.score_page.MAX_CHARACTERS", 20)
    texts = [("an expected line", 0.1), ("a surprising line", 9.0), ("ccc", 0.1)]
    content = page_of(("a", [Line(number, text, np.full(len(text), bits)) for number, (text, bits) in enumerate(texts, 1)]))
    assert "The first 16 characters of 36 are shown" in content
    # no hole in the text, although the last line would fit
    assert [text for text, _ in shown(content)] == ["a surprising line", "an expected line", "an expected line"]
    assert re.findall(r'<a class="n"(.*?)>(\d+)</a>', content) == [("", "2"), (' href="#l1"', "1"), ("", "1")]


# The pointer is in the text node of the line, before the character at `index`.
POINT = """
const point = (text, bits, index) => {
  const line = { textContent: text, dataset: { bits }, contains: () => true, closest: () => line };
  document.caretPositionFromPoint = () => ({ offsetNode: line, offset: index });
  document.createRange = () => ({
    selectNodeContents() {}, setEnd(node, offset) { this.end = offset; }, toString() { return text.slice(0, this.end); },
    setStart() {}, collapse() {}, getBoundingClientRect: () => ({ left: 0 }),
  });
  show({ target: line, clientX: 5, clientY: 5 });
  return about.textContent;
};
"""


@needs_node
def test_each_character_has_its_bits_and_its_probability():
    bits = np.array([np.nan, 0.0, 1.0, 2.25, 6.5, 15.5, 40.0])
    content = page_of(("a", [Line(1, "abcdefg", bits)]))
    codes = content.split('data-bits="')[1].split('"')[0]
    code = f'{POINT} return [..."abcdefg"].map((_, i) => point("abcdefg", "{codes}", i));'
    said = run_script(content, code)
    assert [text[1] for text in said] == list("abcdefg")
    assert "not predicted" in said[0] and "16 bits or more" in said[6]
    for text, value in zip(said[1:6], bits[1:6]):
        assert f"{value:.2f} bits" in text
        assert float(text.split("gave it ")[1].split(" %")[0]) == pytest.approx(100 / 2**value, rel=0.05)
