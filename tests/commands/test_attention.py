"""The verb writes a page of the text that is asked for."""

import re

from chargpt.commands import attention


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


def test_the_number_of_weights_is_bounded(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(attention, "MAX_WEIGHTS", 2 * 9 * 9)
    assert attention.main([str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert "characters 1 to 9 of" in capsys.readouterr().err
