"""The corpora that can be named instead of a path."""

import hashlib

import pytest
from text_helpers import text_of

from chargpt.terminal import UserError
from chargpt.text import sources
from chargpt.text.sources import named_corpus


def test_the_default_is_the_documentation_every_python_carries(load):
    corpus = load()
    assert corpus.name == "python-docs" and "The standard type hierarchy" in text_of(corpus)
    assert corpus.fingerprint == load("python-docs").fingerprint


def test_the_standard_library_is_a_text(tmp_path):
    found = named_corpus("python-source", root=tmp_path)
    names = {source.path.name for source in found}
    assert {"argparse.py", "ast.py"} <= names and "test_argparse.py" not in names
    assert all("site-packages" not in source.path.parts for source in found)


def test_a_download_is_checked_and_saved_or_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "answer").write_bytes(b"the sea")
    monkeypatch.setattr(sources, "SHAKESPEARE_URL", (tmp_path / "answer").as_uri())
    for url in ("http://127.0.0.1:1/", (tmp_path / "nothing").as_uri()):  # where nobody answers
        with (
            monkeypatch.context() as patch,
            pytest.raises(UserError, match="cannot be read .*; download .* save it as .*shake"),
        ):
            patch.setattr(sources, "SHAKESPEARE_URL", url)
            named_corpus("shakespeare", root=tmp_path)
    with pytest.raises(UserError, match="answer gave another text, by its SHA-256; download that file elsewhere"):
        named_corpus("shakespeare", root=tmp_path)
    assert not (tmp_path / "data").exists()
    monkeypatch.setattr(sources, "SHAKESPEARE_SHA256", hashlib.sha256(b"the sea").hexdigest())
    (tmp_path / "data").write_text("a file in place of the folder")
    with pytest.raises(UserError, match="cannot be saved as .*shakespeare.txt .*; download it yourself and give the file"):
        named_corpus("shakespeare", root=tmp_path)
    (tmp_path / "data").unlink()
    (source,) = named_corpus("shakespeare", root=tmp_path)
    assert source.path.read_bytes() == b"the sea" and list((tmp_path / "data").iterdir()) == [source.path]
