"""A text comes out the same whether it is normalised as a whole or in pieces, and text --clean changes nothing but faults."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chargpt.__main__ import main
from chargpt.errors import UserError
from chargpt.text.normalization import TextNormalizer, cleaned

TRICKY = st.text(st.sampled_from("\r\n\t .'aAb1Σσς\u0301\u0338é가\u1100\u1161\u11a8ﬁ가か\u3099中文İß"))


NORMALIZERS = st.builds(
    TextNormalizer,
    newlines=st.sampled_from(["keep", "fold"]),
    normalize=st.sampled_from(["none", "NFC", "NFKC"]),
    lowercase=st.booleans(),
)


@settings(max_examples=100)
@given(TRICKY, TRICKY, NORMALIZERS)
@example("aΣa", "", TextNormalizer(newlines="keep", normalize="none", lowercase=True))
@example("é\r\n", "", TextNormalizer(newlines="fold"))
def test_a_text_may_be_cut_where_it_is_said_to_be_safe(text, more, normalizer):
    cut = normalizer.safe_cut(text)
    assert normalizer.apply(text[:cut]) + normalizer.apply(text[cut:] + more) == normalizer.apply(text + more)


CLEAN = {
    "nothing": ("The sea.\n\n  A stone -\nand well-known ash.\n", "The sea.\n\n  A stone -\nand well-known ash.\n"),
    "a paragraph goes on": ("the old\n\n  12\n\n\fsea is\n", "the old\nsea is\n"),
    "a paragraph ends": ("the sea.\n\n- 12 -\n\fA stone\n\f", "the sea.\n\nA stone\n"),
    "a divided word": ("an exam-\n  ple, here\nand\n", "an example,\nhere\nand\n"),
    "it ends its line": ("an exam-\nple.\n\nNext\n", "an example.\n\nNext\n"),
    "over a page": ("an exam-\n\n12\n\fple of it\n", "an example\nof it\n"),
    "a hyphen of its own": ("a well-\nknown well-known\n", "a well-known\nwell-known\n"),
    "a capital": ("Baden-\nBaden 3-\n4\n", "Baden-\nBaden 3-\n4\n"),
    "soft hyphens": ("ex\u00adam\u00ad\nple\n", "example\n"),
    "ligatures": ("ﬁve ﬂowers, ﬀ\n", "five flowers, ff\n"),
    "line ends": ("a\r\nb\rc", "a\nb\nc"),
    "empty": ("", ""),
}


@pytest.mark.parametrize("name", CLEAN)
def test_a_text_is_cleaned(name):
    text, clean = CLEAN[name]
    assert cleaned(text)[0] == clean == cleaned(clean)[0]


@settings(max_examples=50)
@given(st.text(st.sampled_from("ab \n.,;é")))
def test_a_text_without_faults_stays_as_it_is(text):
    assert cleaned(text) == (text, dict.fromkeys(cleaned("")[1], 0))


@settings(max_examples=50)
@given(st.text(st.sampled_from("aB -\n\f1.")))
def test_no_letter_is_lost(text):
    assert [c for c in cleaned(text)[0] if c.isalpha()] == [c for c in text if c.isalpha()]


def test_the_verb_writes_a_new_file_and_says_what_it_changed(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("ﬁve exam-\nples on\n\n1\n\fpages\n", encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["text", "--help"])
    assert "\n  --clean OUT " in capsys.readouterr().out
    argv = ["text", str(tmp_path / "a.txt"), "--clean", str(tmp_path / "b.txt")]
    assert main(argv) == 0 and (tmp_path / "b.txt").read_text(encoding="utf-8") == "five examples\non\npages\n"
    assert "1 page breaks, 1 hyphens at line ends, " in capsys.readouterr().err
    for target, message in ((argv[3], "b.txt: File exists; choose a name"), (str(tmp_path / "x" / "y"), "--clean: ")):
        with pytest.raises(UserError, match=message):
            main([*argv[:3], target])
