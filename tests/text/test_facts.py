"""The facts about a text are measured once, and a file of them that is not whole is as none."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import train
from chargpt.text import facts
from chargpt.text.corpus import Corpus


@pytest.fixture
def corpus(load, text) -> Callable[[], Corpus]:
    """The corpus of a text, opened again at each call."""
    return lambda: load(text, val_fraction=0.1)


@pytest.fixture
def measured(monkeypatch) -> list[Corpus]:
    """The texts whose facts are measured, one after the other."""
    found, measure = [], facts.measure

    def measured(corpus: Corpus) -> facts.TextFacts:
        found.append(corpus)
        return measure(corpus)

    monkeypatch.setattr(facts, "measure", measured)
    return found


def test_they_are_measured_once_and_are_the_same_from_the_file(corpus, measured):
    first = corpus()
    assert first.facts == first.facts == corpus().facts and len(measured) == 1
    assert corpus().fingerprint == first.fingerprint, "the file is no part of it"


DAMAGED = {
    "empty": lambda content: "",
    "cut short": lambda content: content[:-9],
    "a list": lambda content: "[1]",
    "another version": lambda content: content.replace('"version": 1', '"version": 0'),
    "one fact less": lambda content: json.dumps({key: value for key, value in json.loads(content).items() if key != "shared"}),
    "nested deeply": lambda content: "[" * 9000,
}


@pytest.mark.parametrize("how", DAMAGED)
def test_a_file_that_is_damaged_or_of_another_version_is_measured_and_written_again(how, corpus, measured):
    known = corpus()
    path, whole = known.folder / facts.FACTS, known.facts
    content = path.read_text()
    path.write_text(DAMAGED[how](content))
    assert path.read_text() != content
    assert corpus().facts == whole and len(measured) == 2 and path.read_text() == content


def test_where_the_file_cannot_be_written_and_for_a_text_of_no_cache_they_are_measured_in_memory(corpus, measured):
    known = corpus()
    (known.folder / facts.FACTS).mkdir()
    assert dataclasses.replace(known, folder=None).facts == known.facts == corpus().facts and len(measured) == 3


def test_a_training_from_its_plan_to_its_report_measures_them_once(text, tmp_path, measured):
    words = ["--config", "tiny", "train.max_steps=4", "runtime.threads=1", f"data.cache={tmp_path}/cache"]
    assert train.main([str(text), *words, "--run", f"{tmp_path}/run"]) == 0
    assert len(measured) == 1 and Path(tmp_path, "run", "report.html").is_file()
    assert train.main([str(text), *words, "--run", f"{tmp_path}/other"]) == 0 and len(measured) == 1
