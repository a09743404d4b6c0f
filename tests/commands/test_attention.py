"""The verb writes a page of the text that is asked for."""

import re
import sys

import numpy as np
import pytest
from helpers import publish_run

from chargpt.__main__ import main
from chargpt.commands import attention, losses, score  # noqa: F401
from chargpt.errors import UserError
from chargpt.sampling.loaded_model import load_model


def test_a_page_of_the_validation_split_or_of_a_file(run, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert attention.main([str(run), "--out", str(out)]) == 0
    said = capsys.readouterr().err
    assert re.search(r"characters 1 to (\d+) of the 1,200 in the validation split", said) and "replaces" not in said
    assert "in the validation split" in out.read_text(encoding="utf-8")
    (tmp_path / "a.txt").write_text("The sea \x1b\u202e and the stone")
    assert attention.main([str(run), str(tmp_path / "a.txt"), "--out", str(out), "--start", "4", "--length", "5"]) == 0
    said = capsys.readouterr().err
    assert "characters 5 to 9 of" in said and "page.html: written over an older page" in said and "--out" in said
    assert "\x1b" not in said and "\u202e" not in said
    assert attention.main([str(run), "--text", "The ~s~ea* and I", "--out", str(out)]) == 0
    says = "characters 1 to 13 of the 13 in your text, without 3 characters that the model has never seen: ~ *"
    assert says in capsys.readouterr().err and says in out.read_text(encoding="utf-8")


@pytest.mark.parametrize("number", [3e38, -3e38, 1e30])
@pytest.mark.parametrize("verb", ["attention", "score", "losses"])
def test_a_model_of_numbers_beyond_all_bounds_is_one_line(verb, number, tmp_path, monkeypatch):
    """No page of them can be written, and no text is too short for it."""
    monkeypatch.chdir(tmp_path)
    publish_run(tmp_path / "run")
    (tmp_path / "text.txt").write_text("abcd efgh\n" * 9)
    loaded = load_model(str(tmp_path / "run"), tmp_path)[0]
    for weights in loaded.weights.values():
        weights[...] = np.where(np.arange(weights.size).reshape(weights.shape) % 2, number, -number)
    monkeypatch.setattr(sys.modules[f"chargpt.commands.{verb}"], "load_run", lambda *_, **__: loaded)
    with pytest.raises(UserError, match="numbers that are not finite, so its weights are damaged; use another"):
        main([verb, "run", "text.txt"])


def test_the_number_of_weights_is_bounded(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(attention, "MAX_WEIGHTS", 2 * 9 * 9)
    assert attention.main([str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert "characters 1 to 9 of" in capsys.readouterr().err
