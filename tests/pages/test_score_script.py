"""The script of a scored page says the bits of the character under the pointer."""

import numpy as np
import pytest
from pages.test_score_page import page_of
from scripts import needs_node, run_script

from chargpt.analysis.scored_text import Line

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
