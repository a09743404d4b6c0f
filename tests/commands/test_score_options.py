"""The options of score."""

from pathlib import Path

import pytest

from chargpt.commands.score_options import parse_options
from chargpt.terminal import UserError


def test_texts_and_options():
    options = parse_options(["poems", "a.txt", "b.txt", "--stride", "3", "--html", "p.html"])
    assert (options.run, options.texts, options.stride, options.html) == ("poems", ["a.txt", "b.txt"], 3, Path("p.html"))
    assert parse_options(["poems"]).texts == []
    assert parse_options(["poems", "--stride", "3", "a.txt", "--json", "b.txt"]).texts == ["a.txt", "b.txt"]


@pytest.mark.parametrize(
    "wrong", [[], ["r", "--stride", "0"], ["r", "--lines", "--json"], ["r", "--compare", "q", "--html", "p.html"]]
)
def test_mistakes(wrong):
    with pytest.raises(UserError):
        parse_options(wrong)
