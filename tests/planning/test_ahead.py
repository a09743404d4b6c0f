"""A text that is read while torch is imported is the one that the plan looks for."""

import os
from pathlib import Path

import pytest
from helpers import TINY_FILE

from chargpt.planning.ahead import read_ahead
from chargpt.planning.cli import parse_options
from chargpt.planning.plan import make_plan
from chargpt.project import project_root

RECORDS = "".join(f'{{"text": "the sea is {n}", "poem": "wind {n} blows"}}\n' for n in range(300))
KINDS = {
    "plain": ("sea.txt", "the sea is blue\n" * 400, []),
    "a list": ("names.txt", "".join(f"name{n}\n" for n in range(500)), ["--items", "line"]),
    "a field that is typed": ("poems.jsonl", RECORDS, ["data.field=poem"]),
    "a vocabulary": ("sea.txt", "the sea is blue\n" * 400, ["data.lowercase=true", "data.max_vocab=9"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_plan_finds_what_was_read_ahead_and_reads_and_measures_nothing_again(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("chargpt.text.source.RACY_NS", 10**18)  # a busy machine trusts the file no sooner
    name, content, words = KINDS[kind]
    (tmp_path / name).write_text(content)
    place = ["--run", f"{tmp_path}/run", f"data.cache={tmp_path}/cache"]
    place += ["train.max_steps=2", "model.n_embd=8", "model.n_head=1"]
    options = parse_options([str(tmp_path / name), *words, *place])
    read_ahead(options)
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    make_plan(options, root=project_root())
    assert made and made == {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*") if path.is_file()}


WITHOUT = {
    "a text that is missing": ["{tmp}/missing.txt"],
    "what is read once": ["-"],
    "a pipe": ["{tmp}/pipe"],
    "a pipe for validation": ["{tmp}/sea.txt", "data.val_text={tmp}/pipe"],
    "settings that are wrong": ["{tmp}/sea.txt", "data.split=document", "data.val_text={tmp}/sea.txt"],
    "settings in a file": ["{tmp}/sea.txt", "--config", TINY_FILE],
    "a start, whose characters the vocabulary has": ["{tmp}/sea.txt", "--start", "english"],
    "a run that has its text": ["--resume"],
    "a binary file": ["{tmp}/sea.bin"],
}


@pytest.mark.parametrize("words", WITHOUT.values(), ids=WITHOUT)
def test_nothing_is_read_or_told_ahead_of_a_plan_that_needs_something_else_or_fails(words, tmp_path, capfd):
    (tmp_path / "sea.txt").write_text("the sea is blue\n" * 400)
    (tmp_path / "sea.bin").write_bytes(bytes(range(256)) * 9)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")  # to open it would wait for a writer
    read_ahead(parse_options([*(word.format(tmp=tmp_path) for word in words), f"data.cache={tmp_path}/cache"]))
    assert not list(Path(tmp_path, "cache").rglob("*.bin")) and capfd.readouterr() == ("", "")
