"""The verb writes one page, and a mistake is one line before any work."""

import logging
from pathlib import Path

import pytest
from helpers import publish_run

import chargpt
from chargpt.commands import report
from chargpt.errors import NoSuchRun
from chargpt.runs.checkpoint_schema import NO_TEXT


def test_the_page_of_a_run(run, corpus, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert report.main([str(run), "--device", "cpu", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.out.strip().endswith("page.html") and "MB" in printed.err
    page = out.read_text(encoding="utf-8")
    assert "What it copies" in page and f"poems: {corpus.characters:,} characters" in page, "as the run calls its text"


def test_the_page_of_several_runs_replaces_none_of_one_and_says_whether_they_can_be_compared(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    splits = {"a": "1", "b": "1", "c": "2"}
    a, b, c = (str(publish_run(tmp_path / name, fingerprint=split * 64)) for name, split in splits.items())
    for names, said in (([a], False), ([a, b], False), ([a, c], True)):
        page = "report.html" if names == [a] else "comparison.html"
        assert report.main([*names, "--device", "cpu"]) == 0
        out, err = capsys.readouterr()
        content = (tmp_path / page).read_text(encoding="utf-8")
        assert out.strip() == page and ("cannot be compared" in err) == ("cannot be compared" in content) == said


def test_the_page_of_a_run_that_was_imported_without_a_text_says_so(tmp_path, capsys):
    run = publish_run(tmp_path / "run", texts=[], fingerprint=NO_TEXT)
    assert report.main([str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert "imported without a text" in capsys.readouterr().err
    assert "unknown (imported)" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_program_that_asks_for_a_page_hears_of_problems_alone(tmp_path, monkeypatch, capsys):
    """Without a configuration, Python prints what is logged as a warning."""
    monkeypatch.chdir(tmp_path)
    for name, fingerprint in (("good", "1"), ("other", "2")):
        publish_run(tmp_path / name, fingerprint=fingerprint * 64)
    records, log = list[logging.LogRecord](), logging.getLogger("chargpt")
    monkeypatch.setattr(log, "isEnabledFor", lambda level: level >= logging.INFO)
    monkeypatch.setattr(log, "handle", records.append)
    assert chargpt.report("./good", "./other") == Path("comparison.html")
    told = [record.getMessage() for record in records if record.levelname == "WARNING"]
    assert len(told) == 3 and told[-1].startswith("warning: the runs differ") and len(records) == 5
    assert capsys.readouterr() == ("", "")
    with pytest.raises(ValueError, match="no run is named"):
        chargpt.report()


def test_a_model_in_one_file_is_no_run_and_has_no_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept.safetensors").write_bytes(b"of a run")
    with pytest.raises(NoSuchRun, match="^kept.safetensors: a file, and this is for runs"):
        report.main(["kept.safetensors"])
