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
from chargpt.text.cleaning import clean_text, turned_back
from chargpt.text.examination import examine
from chargpt.text.remains import REMAINS, TOLD


def read_as(encoding, text, *, letters=None):
    """The UTF-8 of a text in the characters of another encoding; of those lines alone that have no other `letters`."""
    as_read = [
        "".join(bytes([byte]).decode(encoding, "ignore") or chr(byte) for byte in one.encode()) for one in text.split("\n")
    ]
    is_meant = [letters is None or not re.search(f"[^\0-\x7f{letters}]", line) for line in text.split("\n")]
    return "\n".join(read if meant else line for read, meant, line in zip(as_read, is_meant, text.split("\n")))


SENTENCES = st.lists(
    st.sampled_from(
        [
            "Où est le café?",
            "“It’s late,” he said.",
            '"It\'s late," he said.',
            "A < B & C",
            "Grüße: schön",
            "Žluťoučký kůň",
            "Я не знаю",
            "日本か😀日本",
        ]
    ),
    min_size=3,
    max_size=9,
)
WRITTEN = {  # how another program has written a text, and which remainder it leaves
    "Ã©": lambda text: read_as("cp1252", text),
    "Р°": lambda text: read_as("cp1251", text, letters="а-яА-Я"),
    "√©": lambda text: read_as("mac_roman", text, letters="à-ÿß“-”’"),
    "├⌐": lambda text: read_as("cp850" if "Où" in text else "cp437", text, letters="à-ÿß"),
    "U+00AD": lambda text: re.sub(r"(?<=[a-z]{2})(?=[a-z]{2})", "\u00ad", text),
    "ESC[1m": lambda text: re.sub(r"\w+", "\x1b[1m\\g<0>\x1b[0m", text),
    "_^H": lambda text: re.sub(r"\b(\w)", "\\1\x08\\1", text),
    r"\n": lambda text: text.replace("\n", "\\n"),
    r"\u00e9": lambda text: json.dumps(text)[1:-1].replace("\\n", "\n").replace('\\"', '"'),
    r"\"": lambda text: re.sub("[\"']", r"\\\g<0>", text),
    "''": lambda text: re.sub("[\"']", r"\g<0>\g<0>", text),
    "&amp;": html.escape,
    "<br />": lambda text: text.replace("\n", "<br />"),
    "<b>": lambda text: "\n".join(f"<p>{line}</p>" for line in text.split("\n")),
    "=C3=A9": lambda text: quopri.encodestring(text.encode()).decode(),
    "%C3%A9": lambda text: quote(text, safe=" \n?,.<&:()\"'"),
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
    "\u00ad",
    "\x1b",
    "[1m",
    "\x08",
    "'",
    '"',
    "√",
    "Р",
    "├",
    "-\n",
]


@given(st.sampled_from([*WRITTEN]), SENTENCES)
def test_what_another_program_has_written_is_told_and_turned_back(load, tmp_path, name, sentences):
    text = "\n".join(sentences)
    written = WRITTEN[name](text)
    back, counts = turned_back(written)
    if counts[name]:
        assert back.rstrip("\n") == text
        corpus = load(write(tmp_path / "a.txt", written + "\n" + written), val_fraction=0.1)
        (odd,) = [str(words) for label, words, _ in examine(corpus) if label is Kind.ODD]
        assert f"{name} (" in odd and "text FILE --clean NEW turns them back; the first in line " in odd
    assert counts[name] or len(re.findall(rf"(?:{re.escape(name[:2])}\w*)+", written)) < 2 or name in ("&amp;", r"\"")


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
        "caf\\'e, na\\\"ive and \\textbf{x\\to y}\n",
        'def f():\n    """Say "" or x=""."""\n',
        "├── a\n│   └── b─┐\n",
        "√2 ≈ 1,41 ¬a\nР. С.\n",
    ],
)
def test_code_and_prose_have_no_remains(text):
    text *= 9
    assert turned_back(text)[0] == text and not any(clean_text(text.replace("\u00a0", " ").replace("…", ""))[1].values())


BYTES = {"\\x": "\\x{:02x}", "octal": "\\{:o}"}  # of UTF-8, and characters by their numbers
NUMBERS = {"\\x": r"\x{:02x}", "\\u{}": r"\u{{{:x}}}", "\\U": r"\U{:08x}"}


@given(SENTENCES, st.sampled_from([*BYTES, *NUMBERS]), st.booleans())
def test_however_a_program_writes_a_number_it_is_that_of_a_character(sentences, form, are_bytes):
    text = "\n".join(sentences * 2)  # one alone may be meant
    if are_bytes and form in BYTES:
        written = re.sub("[^\0-\x7f]", lambda one: "".join(map(BYTES[form].format, one[0].encode())), text)
    else:
        allowed = "[^\0-\xff]" if form == "\\x" else "[^\0-\U000fffff]"
        if form not in NUMBERS or re.search(allowed, text):
            return
        written = re.sub("[^\0-\x7f]", lambda one: NUMBERS[form].format(ord(one[0])), text)
    assert turned_back(written)[0] == text


@given(st.lists(st.text("abcde", min_size=4, max_size=9), min_size=9, max_size=30), st.sampled_from("-\u00ad\u2010"))
def test_words_that_line_ends_divide_are_told_and_joined(words, hyphen):
    (row,) = [one for one in TOLD if one not in REMAINS]
    divided = " ".join(f"{word[:2]}{hyphen}\n{word[2:]}" for word in words)
    assert len(row.found_in(divided)) == len(words) and turned_back(divided)[0] == divided
    assert clean_text(divided)[0].split() == words


def test_a_mail_in_latin_1_is_turned_back():
    text = "une idée, ça, où? a très bon café, voilà.\n" * 5
    assert turned_back(quopri.encodestring(text.encode("latin-1")).decode())[0] == text


def test_what_hides_another_one_is_turned_back_too():
    assert turned_back("the sea&lt;br&gt;the stone&amp;#39;s\n" * 3)[0] == "the sea\nthe stone's\n" * 3
    assert [one.name for one in REMAINS] == [*WRITTEN]


@given(st.lists(st.sampled_from([*WRITTEN, *PIECES]), max_size=40).map("".join))
def test_they_are_found_wherever_their_pattern_is(text):
    for one in TOLD:
        everywhere = one._replace(between=math.inf)
        found = [match.span() for match in re.finditer(one.pattern, text)]
        assert [match.span() for match in everywhere.found_in(text)] == found
