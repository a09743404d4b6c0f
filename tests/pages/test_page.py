"""Pages load nothing, run only their own script, and show hostile text as text."""

import base64
import hashlib
import html
import json
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup
from scripts import Elements

from chargpt.markup import escape
from chargpt.pages.page import LEVELS, page, publish_page, stretches

HOSTILE = ["</script><script>alert(1)</script>", "<!--", "\x1b[31m", "\u202eabc\u2066", "a\"b'c&d", "\0\x7f\u2028", "\ud800"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(text, tmp_path):
    plain = Elements(page("t", body=Markup("<p></p>"), script="1", data={"facts": ""}))
    content = page(text, body=Markup(f"<p>{escape(text)}</p>"), script="1", data={"facts": [text]})
    found = Elements(content)
    assert found.tags == plain.tags
    assert [json.loads(one.text) for one in found.all if one.attributes.get("id") == "facts"] == [[text]]
    body = re.search("<p>(.*?)</p>", content, re.DOTALL)[1]
    assert not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u206f]", content)
    if text.isprintable():
        assert html.unescape(body) == text
    publish_page(tmp_path / "page.html", content)
    (tmp_path / "page.html").read_text(encoding="utf-8")


def test_marks_of_direction_are_shown_and_joiners_work():
    assert html.unescape(escape('a < b & "c"')) == 'a < b & "c"'
    assert escape("a\u200f\u061c\u202eb\ue000") == "a\\u200f\\u061c\\u202eb\\ue000"
    assert escape("می\u200cخواهم 👩\u200d🚀") == "می\u200cخواهم 👩\u200d🚀"


def test_the_policy_allows_the_page_and_nothing_else():
    content = page("t", body=Markup(""), style="p { color: red; }", script="document.title = 'é';")
    policy = html.unescape(re.search('http-equiv="Content-Security-Policy" content="(.*?)"', content)[1])
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for one in Elements(content).all:
        if one.tag in ("script", "style"):
            digest = base64.b64encode(hashlib.sha256(one.text.encode()).digest()).decode()
            assert rules[f"{one.tag}-src"] == f"'sha256-{digest}'"
    assert "script-src 'none'" in page("t", body=Markup(""))


@given(st.lists(st.one_of(st.floats(0, 40), st.sampled_from([*LEVELS, math.nan])), max_size=40))
def test_stretches_cover_the_text_once_and_each_has_one_level(bits):
    found = stretches(np.array(bits))
    assert [place for _, start, stop in found for place in range(start, stop)] == list(range(len(bits)))
    for level, start, stop in found:
        for value in bits[start:stop]:
            assert level == (-1 if math.isnan(value) else sum(value >= least for least in LEVELS))
    assert all(before != after for (before, *_), (after, *_) in zip(found, found[1:]))
