"""The model card says what the run is, and nothing in a run's names or text can become HTML, Markdown or a terminal command."""

import re

import pytest
from exchange_helpers import options_of

from chargpt.exchange.model_card import block, markdown, write_card
from chargpt.model import POSITIONS
from chargpt.text.tokenizer import Tokenizer

HOSTILE = [
    "<script>alert(1)</script>",
    "![x](http://example.invalid/x.png)",
    "[a](javascript:alert(1))",
    "`code` **bold** _it_ ~~no~~",
    "a|b|c",
    "# title",
    "line\n\n---\nlicense: mit",
    "\x1b[31mred\x1b[0m",
    "\u202etxt.exe",
    "www.example.invalid",
    "&lt;b&gt;",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_escaped(name):
    shown = markdown(name)
    assert "<" not in shown and ">" not in shown and "\n" not in shown and "\x1b" not in shown and "\u202e" not in shown
    # Every character that Markdown interprets has a backslash before it.
    assert not re.search(r"(?<!\\)[`*\[\]()#|!~]", shown.replace("\\\\", ""))
    assert "www." not in shown


def test_a_block_ends_nowhere():
    assert block("a\n```\n<b>\n\x1b]0;x\x07\u2028b") == "    a\n    ```\n    <b>\n    \\x1b]0;x\\x07\\u2028b"


def write(path, loaded, options, **changes):
    arguments = {"library": "transformers", "usage": "Use it.", "notes": ["A note."], **changes}
    write_card(path, loaded, options, **arguments)
    return path.read_text(encoding="utf-8")


def test_a_hostile_run_gives_a_harmless_card(tmp_path, make_model):
    characters = "".join(sorted(set("<script>alert(1)</script>`*#\n\x1b\u202e")))
    loaded = make_model(tokenizer=Tokenizer(characters))
    card = write(tmp_path / "README.md", loaded, options_of(loaded, name="<script>\n# x", texts=HOSTILE))
    outside = [line for line in card.split("\n") if not line.startswith("    ")]
    assert not any("<" in line or "\x1b" in line or "\u202e" in line for line in outside)
    assert "\x1b" not in card and "\u202e" not in card
    front = card.split("---\n")[1]
    assert card.count("\n---\n") == 1 and "mit" in front and "\nlicense:" not in front


@pytest.mark.parametrize("positions", POSITIONS)
def test_the_card_says_what_the_model_is(tmp_path, make_model, positions):
    loaded = make_model(positions=positions)
    card = write(tmp_path / "README.md", loaded, options_of(loaded))
    assert f"{loaded.model.parameter_count():,} parameters" in card and "1.5000 nats (2.1640 bits) per character" in card
    assert "trained on poems.txt" in card and "/secret" not in card
    past = "never" if positions == "rotary" else "is an error"
    assert past in card and "| context | 24 |" in card and "# license: add" in card


def test_the_vocabulary_of_each_kind_is_described(tmp_path, make_model, each_vocabulary):
    loaded = make_model(tokenizer=each_vocabulary)
    card = write(tmp_path / "README.md", loaded, options_of(loaded))
    expected = "256 byte values" if each_vocabulary.characters is None else f"{len(each_vocabulary.characters)} characters"
    assert expected in card and ("every other character" in card) == each_vocabulary.folded
