"""A text comes out the same whether it is normalised as a whole or in pieces, and text --clean changes nothing but faults."""

import itertools
import unicodedata
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chargpt.__main__ import main
from chargpt.config import DataConfig, NormalForm
from chargpt.errors import UserError
from chargpt.text.cleaning import clean_text
from chargpt.text.normalization import TextNormalizer

TRICKY = st.text(st.sampled_from("\r\n\t .'aAb1Σσς\u0301\u0338é가\u1100\u1161\u11a8ﬁ가か\u3099中文İß"))
CHOICES = {"newlines": ["keep", "fold"], "normalize": [*get_args(NormalForm)], "lowercase": [False, True]}
NORMALIZERS = st.builds(TextNormalizer, **{name: st.sampled_from(values) for name, values in CHOICES.items()})


@given(TRICKY, TRICKY, NORMALIZERS)
@example("aΣa", "", TextNormalizer(newlines="keep", normalize="none", lowercase=True))
@example("é\r\n", "", TextNormalizer(newlines="fold"))
def test_a_text_may_be_cut_where_it_is_said_to_be_safe(text, more, normalizer):
    cut = normalizer.safe_cut(text)
    assert normalizer.apply(text[:cut]) + normalizer.apply(text[cut:] + more) == normalizer.apply(text + more)
    assert "".join(normalizer.apply_in_pieces([text, "", more])) == normalizer.apply(text + more)
    assert normalizer.safe_cut(text + "ab") > len(text), "little is held back of a plain text"


@given(TRICKY)
def test_each_setting_does_what_it_says_and_nothing_else(text):
    for values in itertools.product(*CHOICES.values()):
        config = dict(zip(CHOICES, values))
        expected = "\n".join(text.replace("\r\n", "\r").split("\r")) if config["newlines"] == "fold" else text
        expected = expected.lower() if config["lowercase"] else expected
        expected = expected if config["normalize"] == "none" else unicodedata.normalize(config["normalize"], expected)
        normalizer = TextNormalizer.of(DataConfig(**config))
        assert normalizer == TextNormalizer(**config) and normalizer.apply(text) == expected
        assert normalizer.is_identity == (values == ("keep", "none", False))
    assert TextNormalizer.of(DataConfig(newlines="auto")).is_identity


CLEAN = [  # texts before and after
    ("The sea.\n\n  A stone -\nand well-known ash.\n", "The sea.\n\n  A stone -\nand well-known ash.\n"),
    ("the old\n\n  12\n\n\fsea is\n", "the old\nsea is\n"),  # a paragraph goes on
    ("the sea.\n\n- 12 -\n\fA stone\n\f", "the sea.\n\nA stone\n"),  # a paragraph ends
    ("an exam-\n  ple, here\nand\n", "an example,\nhere\nand\n"),
    ("an exam-\nple.\n\nNext\n", "an example.\n\nNext\n"),
    ("an exam-\n\n12\n\fple of it\n", "an example\nof it\n"),
    ("a well-\nknown well-known\n", "a well-known\nwell-known\n"),  # a hyphen of its own
    ("Baden-\nBaden 3-\n4\n", "Baden-\nBaden 3-\n4\n"),
    ("ex\u00adam\u00ad\nple\n", "example\n"),
    ("ﬁve ﬂowers, ﬀ\n", "five flowers, ff\n"),
    ("a\r\nb\rc", "a\nb\nc"),
    ("", ""),
]


@pytest.mark.parametrize(("text", "clean"), CLEAN)
def test_a_text_is_cleaned(text, clean):
    assert clean_text(text)[0] == clean == clean_text(clean)[0]


@given(st.text(st.sampled_from("ab \n.,;é")), st.text(st.sampled_from("aB -\n\f1.")))
def test_a_text_without_faults_stays_as_it_is_and_no_letter_of_another_is_lost(text, faulty):
    assert clean_text(text) == (text, dict.fromkeys(clean_text("")[1], 0))
    assert [c for c in clean_text(faulty)[0] if c.isalpha()] == [c for c in faulty if c.isalpha()]


def test_the_verb_writes_a_new_file_and_says_what_it_changed(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("ﬁve exam-\nples on\n\n1\n\fpages\n", encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["text", "--help"])
    assert "\n  --clean OUT " in capsys.readouterr().out
    argv = ["text", str(tmp_path / "a.txt"), "--clean", str(tmp_path / "b.txt")]
    assert main(argv) == 0 and (tmp_path / "b.txt").read_text(encoding="utf-8") == "five examples\non\npages\n"
    assert "1 page breaks, 1 hyphens at line ends, 1 letters in special forms" in capsys.readouterr().err
    for target, message in ((argv[3], "b.txt: File exists; choose a name"), (str(tmp_path / "x" / "y"), "--clean: ")):
        with pytest.raises(UserError, match=message):
            main([*argv[:3], target])
