"""A verb finds the run, its text in the cache alone, and the part of a text that it is asked for."""

import pytest

from chargpt.commands.loaded_run import corpus_of_run, load_run, part_of_text
from chargpt.terminal import UserError


def test_the_run_and_its_corpus_are_found(run, corpus, capsys):
    loaded = load_run(str(run), device="cpu")
    assert capsys.readouterr().err.startswith("run, step 500")
    assert corpus_of_run(loaded).fingerprint == corpus.fingerprint


def test_a_part_of_a_text(run, corpus, tmp_path, capsys):
    loaded = load_run(str(run), device="cpu")
    ids, place = part_of_text(None, loaded, start=3, length=5)
    assert (
        ids.tolist() == corpus.val[3:8].tolist() and place == f"characters 4 to 8 of the validation part ({len(corpus.val):,})"
    )
    (tmp_path / "a\x1b.txt").write_text("the~sea")
    ids, place = part_of_text(str(tmp_path / "a\x1b.txt"), loaded, start=0, length=50)
    assert corpus.tokenizer.decode(ids.tolist()) == "thesea" and "\x1b" not in place
    assert "left out 1 character that" in capsys.readouterr().err


def test_mistakes_are_one_line(run, tmp_path):
    with pytest.raises(UserError, match="--device"):
        load_run(str(run), device="quantum")
    loaded = load_run(str(run), device="cpu")
    (tmp_path / "a.txt").write_text("~~~")
    with pytest.raises(UserError, match="at least 1 are needed"):
        part_of_text(str(tmp_path / "a.txt"), loaded, start=0, length=5)
