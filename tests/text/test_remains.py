"""Remains of other formats are counted, with the first one, and turned back on request."""

import html
import json
import math
import quopri
import re
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_helpers import write

from chargpt.notices import Kind
from chargpt.text.cleaning import clean_text
from chargpt.text.examination import examine
from chargpt.text.remains import REMAINS, turned_back


def as_windows(byte: int) -> str:
    return bytes([byte]).decode("cp1252" if byte not in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else "latin-1")


SENTENCES = st.lists(
    st.sampled_from(
        ["Où est le café?", "“It’s late,” he said.", "A < B & C", "Grüße: schön", "Žluťoučký kůň", "Я не знаю", "日本か😀日本"]
    ),
    min_size=3,
    max_size=9,
)
WRITTEN = {  # how another program has written a text, and which remainder it leaves
    "Ã©": (lambda text: "".join(map(as_windows, text.encode())), lambda text: True),
    r"\n": (lambda text: text.replace("\n", "\\n"), lambda text: "\n" in text),
    r"\u00e9": (lambda text: json.dumps(text)[1:-1].replace("\\n", "\n"), str.isascii),
    "&amp;": (html.escape, lambda text: "&" in html.escape(text)),
    "<br />": (lambda text: text.replace("\n", "<br />"), lambda text: True),
    "<b>": (lambda text: "\n".join(f"<p>{line}</p>" for line in text.split("\n")), lambda text: True),
    "=C3=A9": (lambda text: quopri.encodestring(text.encode()).decode(), lambda text: True),
    "%C3%A9": (lambda text: quote(text, safe=" \n?,.<&:()"), lambda text: True),
}
PIECES = [
    "Ã",
    "©",
    "â€™",
    "à¤¹à¤¿",
    "ð\x9f",
    "é",
    "\\",
    "n",
    "r",
    "u00e9",
    "#39;",
    "amp;",
    "<br",
    ">",
    "</b>",
    "=",
    "\n",
    "E9",
    "a",
    " ",
]


@given(st.sampled_from([*WRITTEN]), SENTENCES)
def test_what_another_program_has_written_is_told_and_turned_back(load, tmp_path, name, sentences):
    text = "\n".join(sentences)
    written = WRITTEN[name][0](text)
    back, counts = turned_back(written)
    if counts[name]:
        assert back.rstrip("\n") == text
        corpus = load(write(tmp_path / "a.txt", written + "\n" + written), val_fraction=0.1)
        (odd,) = [str(words) for label, words, _ in examine(corpus) if label is Kind.ODD]
        assert f"{name} (" in odd and "text FILE --clean NEW turns them back; the first in line " in odd
    assert counts[name] or len(re.findall(rf"(?:{re.escape(name[:2])}\w*)+", written)) < 2 or name == "&amp;"


@pytest.mark.parametrize(
    "text",
    [
        "print('a\\n')\n",
        "x = 20\n",
        "a < b and c > d\n",
        "AT&T; R&D\n",
        "100%CPU\n",
        "«\u00a0Voilà\u00a0», dit René…\u00a0»\n",
        "<u> hi\n<s> who?\n",
    ],
)
def test_code_and_prose_have_no_remains(text):
    text *= 9
    assert turned_back(text)[0] == text and not any(clean_text(text.replace("\u00a0", " ").replace("…", ""))[1].values())


def test_a_mail_in_latin_1_is_turned_back():
    text = "une idée, ça, où? a très bon café, voilà.\n" * 5
    assert turned_back(quopri.encodestring(text.encode("latin-1")).decode())[0] == text


def test_what_hides_another_one_is_turned_back_too():
    assert turned_back("the sea&lt;br&gt;the stone&amp;#39;s\n" * 3)[0] == "the sea\nthe stone's\n" * 3
    assert [one.name for one in REMAINS] == [*WRITTEN]


@given(st.lists(st.sampled_from([*WRITTEN, *PIECES]), max_size=40).map("".join))
def test_they_are_found_wherever_their_pattern_is(text):
    for one in REMAINS:
        everywhere = one._replace(between=math.inf)
        found = [match.span() for match in re.finditer(one.pattern, text)]
        assert [match.span() for match in everywhere.found_in(text)] == found
