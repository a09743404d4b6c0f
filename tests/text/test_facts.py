"""The facts about a text are measured once, and a file of them that is not whole is as none."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import train
from chargpt.text import facts
from chargpt.text.corpus import Corpus
from chargpt.text.facts import copying, ngram_probabilities


@pytest.fixture
def corpus(load, text) -> Callable[[], Corpus]:
    """The corpus of a text, opened again at each call."""
    return lambda: load(text, val_fraction=0.1)


@pytest.fixture
def measured(monkeypatch) -> list[Corpus]:
    """The texts whose facts are measured, one after the other."""
    found, measure = [], facts.measure
    monkeypatch.setattr(facts, "measure", lambda corpus: found.append(corpus) or measure(corpus))
    return found


def test_they_are_measured_once_and_are_the_same_from_the_file(corpus, measured):
    first = corpus()
    assert first.facts == first.facts == corpus().facts and len(measured) == 1
    assert corpus().fingerprint == first.fingerprint, "the file is no part of it"


DAMAGED = [
    lambda content: "",
    lambda content: content[:-9],
    lambda content: "[1]",
    lambda content: content.replace('"version": ', '"version": 9'),
    lambda content: content.replace('"n_train": 1', '"n_train": 2'),
    lambda content: json.dumps({key: value for key, value in json.loads(content).items() if key != "shared"}),
    lambda content: "[" * 9000,
]


def test_a_file_that_is_damaged_or_of_another_version_is_measured_and_written_again(corpus, measured):
    known = corpus()
    path, whole = known.folder / facts.FACTS, known.facts
    content = path.read_text()
    for number, damaged in enumerate(DAMAGED, 2):
        path.write_text(damaged(content))
        assert path.read_text() != content
        assert corpus().facts == whole and len(measured) == number and path.read_text() == content


def test_where_the_file_cannot_be_written_and_for_a_text_of_no_cache_they_are_measured_in_memory(corpus, measured):
    known = corpus()
    (known.folder / facts.FACTS).mkdir()
    assert dataclasses.replace(known, folder=None).facts == known.facts == corpus().facts and len(measured) == 3


def test_a_training_from_its_plan_to_its_report_measures_them_once(text, tmp_path, measured):
    words = ["--config", "tiny", "train.max_steps=4", "runtime.threads=1", f"data.cache={tmp_path}/cache"]
    assert train.main([str(text), *words, "--run", f"{tmp_path}/run"]) == 0
    assert len(measured) == 1 and Path(tmp_path, "run", "report.html").is_file()
    assert train.main([str(text), *words, "--run", f"{tmp_path}/other"]) == 0 and len(measured) == 1


def ngram_bits(train, val, *, vocab_size, order):
    return -np.log2(ngram_probabilities(train, val, vocab_size=vocab_size, order=order)).mean()


def test_the_ngram_is_a_distribution():
    """Over all that could come next, the probabilities of a context sum to one: seen contexts and unseen ones."""
    train = np.random.default_rng(0).integers(0, 4, 200).astype(np.uint8)
    for context in ([0, 1, 2], [3, 3, 3], [2, 0, 2]):
        bits = [ngram_bits(train, np.uint8([*context, c]), vocab_size=5, order=3) for c in range(5)]
        assert sum(2**-b for b in bits) == pytest.approx(1)


def test_the_ngram_finds_what_there_is_to_find():
    noise, cycle = np.random.default_rng(0).integers(0, 16, 100_000), np.tile(np.arange(7), 1000)
    assert ngram_bits(noise[:50_000], noise[50_000:], vocab_size=16, order=2) == pytest.approx(4, abs=0.2)
    assert ngram_bits(cycle, cycle, vocab_size=7, order=3) < 0.01


def repeating(distance: int) -> np.ndarray:
    """Random ids in which every group of `distance` is followed by a copy of itself."""
    groups = np.random.default_rng(1).integers(0, 16, (20_000 // distance, 1, distance))
    return np.repeat(groups, 2, axis=1).astype(np.uint16).ravel()


@pytest.mark.parametrize(("distance", "window", "finds"), [(40, 64, True), (40, 40, True), (40, 39, False), (100, 64, False)])
def test_copies_within_the_window_make_a_text_easier(distance, window, finds):
    ids = repeating(distance)
    ratio = copying(ids, np.full(len(ids), 1 / 16), window=window)
    assert 0.5 < ratio < 0.65 if finds else 0.97 < ratio <= 1


@pytest.mark.parametrize("vocab_size", [1, 2, 50])
@pytest.mark.parametrize("length", [3, 4, 30, 1000])
def test_copying_never_makes_a_text_harder(vocab_size, length):
    train, val = (np.random.default_rng(n).integers(0, vocab_size, n).astype(np.uint8) for n in (500, length))
    probability = ngram_probabilities(train, val, vocab_size=vocab_size, order=2)
    assert 0 < copying(val[2:], probability, window=128) <= 1
