"""Whatever a text holds, in a page it is text, or data of a script."""

import html
import json

import pytest

from chargpt.markup import as_json, escape

HOSTILE = ["</script><script>alert(1)</script>", "<!--", "\x1b[31m", "a\"b'c&d", "\0\x7f\u2028", "é中"]


@pytest.mark.parametrize("text", HOSTILE)
def test_data_comes_back_and_has_no_markup(text):
    written = as_json({"a": text})
    assert json.loads(written) == {"a": text}
    assert written.isascii() and not set(written) & set("<>&")


@pytest.mark.parametrize("text", HOSTILE)
def test_escaped_text_has_no_markup_and_no_controls(text):
    written = escape(text)
    assert not set(written) & set("<>\"'") and not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in written)


def test_escaped_text_reads_as_it_was():
    assert html.unescape(escape('a < b & "c"')) == 'a < b & "c"'
    assert escape("\u202eabc") == "\\u202eabc"


def test_marks_of_direction_are_shown_and_joiners_work():
    assert escape("a\u200f\u061cb\ue000") == "a\\u200f\\u061cb\\ue000"
    assert escape("می\u200cخواهم 👩\u200d🚀") == "می\u200cخواهم 👩\u200d🚀"
