"""A plain text is divided by a mark of one's own, into documents or items."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_helpers import text_of, write

from chargpt.config import DataConfig
from chargpt.errors import UserError
from chargpt.text.item_reader import list_items
from chargpt.text.marks import divider_in

LINES = st.lists(
    st.sampled_from(["the sea", "50 % of it", "* and a stone", "", "  far", "<|x|", "wind"]), min_size=1, max_size=4
)
PARTS = st.lists(LINES.map("\n".join).filter(str.strip), min_size=2, max_size=6)
STARTS = {"<|endoftext|>": "<|startoftext|>", "</doc>": "<doc>", "</s>": "<s>"}
UNTOLD = ("END", "a.b", "##")  # which may be lines of a text or of code
MARKS = {  # and how they stand in a text
    **dict.fromkeys((*UNTOLD, *"%~§¶⁂", "---", "=====", "<eos>", "[SEP]", "--- end ---"), "\n{}\n"),
    **{"***": "\n  {} \r\n", "* * *": "\n\n{}\n\n", "\\f": "\f", "</doc>": "\n{}\n", "<|endoftext|>": "{}", "</s>": "{}"},
}


@given(PARTS, st.sampled_from([*MARKS]), st.booleans())
def test_what_is_between_two_marks_is_a_document_or_an_item(tmp_path, load, parts, mark, has_ends):
    between = MARKS[mark].format(mark)
    content = between.join(parts) + between * has_ends
    if start := STARTS.get(mark, ""):
        content = f"{start}\n{content}".replace(mark, f"{mark}\n{start}\n")
    assert divider_in(content * 9) == mark * (mark not in UNTOLD)
    path, wanted = write(tmp_path / "a.txt", content.encode()), [part.strip("\n") for part in parts]
    corpus = load(path, field=mark, format="fields", separator="@", block_size=1, newlines="fold")
    assert text_of(corpus).split("@") == wanted
    items = list_items([str(path)], DataConfig(items=mark), root=tmp_path)
    assert [item.text for item in items] == [one.strip("\n").rstrip() for one in wanted]


def test_a_mark_that_is_not_in_the_text_is_told_and_items_to_look_at_are_lines_then(tmp_path, load):
    path = write(tmp_path / "a.txt", "50 % of it\nthe sea\n%%\n")
    for mark in ("%", "<|endoftext|>", "sea", "\\f"):
        with pytest.raises(
            UserError, match=f"plain text, in which no line is {re.escape(repr(mark))}; name a line between items"
        ):
            load(path, items=mark)
        with pytest.raises(UserError, match="is read without fields, and this is no line between its documents; leave it out"):
            load(path, field=mark, format="fields", asked={"field": mark})
        assert len(list_items([str(path)], DataConfig(items=mark), root=tmp_path)) == 3
