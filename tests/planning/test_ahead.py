"""What is done before torch is imported: a text is read, for the plan, and a mistake is told, in the words of the plan."""

import os
from pathlib import Path

import pytest
from helpers import TINY_FILE, publish_run

import chargpt
from chargpt.errors import IN_PYTHON, UserError
from chargpt.planning.ahead import check_command_line, read_ahead
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


TOLD = {  # what no plan can be made of, as arguments of Python
    "a text that is missing": ("missing.txt", {}),
    "one of two": (["sea.txt", "missing.txt"], {}),
    "a run that exists": ("sea.txt", {"run": "{tmp}/run"}),
    "a start that does not": ("sea.txt", {"start": "inglish"}),
    "a device": ("sea.txt", {"device": "gpu"}),
}


@pytest.mark.parametrize("text, given", TOLD.values(), ids=TOLD)
def test_a_mistake_is_told_by_the_call_and_by_the_command_as_by_the_plan(text, given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sea.txt").write_text("the sea is blue\n" * 400)
    publish_run(tmp_path / "run")
    given = {name: value.format(tmp=tmp_path) for name, value in given.items()}
    with pytest.raises(ValueError) as told:
        chargpt.start(text, **given)
    words = [text] if isinstance(text, str) else [*text]
    words += [word for name, value in given.items() for word in (f"--{name}", value)]
    for by in (check_command_line, lambda words: make_plan(parse_options(words), root=tmp_path)):
        with pytest.raises(UserError) as same:
            by(words)
        assert type(same.value) is type(told.value) and IN_PYTHON(same.value) == str(told.value)
