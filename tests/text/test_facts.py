"""The facts about a text are measured once, and a file of them that is not whole is as none."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from session_helpers import written_report

import train
from chargpt.text import facts
from chargpt.text.cache import EncodedText
from chargpt.text.corpus import Corpus
from chargpt.text.facts import copying, ngram_probabilities
from chargpt.text.tokenizer import Tokenizer


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


DAMAGED = [
    lambda content: content,
    lambda content: "",
    lambda content: content[:-9],
    lambda content: "[1]",
    lambda content: content.replace('[["', '[["0', 1),
    lambda content: content.replace('", 1', '", 2', 1),
    lambda content: content.replace('"shared": ', '"other": '),
    lambda content: "[" * 9000,
]


def test_they_are_measured_once_and_again_if_their_file_is_damaged_or_of_another_version(corpus, measured):
    known = corpus()
    path, whole = known.folder / facts.FACTS, known.facts
    content = path.read_text()
    for number, damaged in enumerate(DAMAGED, 1):
        path.write_text(damaged(content))
        assert (path.read_text() == content) == (number == 1) and corpus().fingerprint == known.fingerprint
        assert corpus().facts == whole == known.facts and len(measured) == number and path.read_text() == content


def test_where_the_file_cannot_be_written_and_for_a_text_of_no_cache_they_are_measured_in_memory(corpus, measured):
    known = corpus()
    (known.folder / facts.FACTS).mkdir()
    assert dataclasses.replace(known, folder=None).facts == known.facts == corpus().facts and len(measured) == 3


def test_a_training_from_its_plan_to_its_report_measures_them_once(text, tmp_path, measured):
    words = ["--config", "tiny", "train.max_steps=4", "runtime.threads=1", f"data.cache={tmp_path}/cache"]
    for run in ("run", "other"):
        assert train.main([str(text), *words, "--run", f"{tmp_path}/{run}"]) == 0 and len(measured) == 1
    assert "n-gram model" in written_report(tmp_path / "run") and len(measured) == 1


def test_they_are_the_same_whatever_the_vocabulary_has_beside_the_text(load, text):
    assert load(text, val_fraction=0.1, known="\u0001@~\u4e00").facts == load(text, val_fraction=0.1).facts


@given(st.integers(3, 200), st.integers(0, 40))
@example(30, 1)
def test_a_model_is_judged_by_the_validation_split_or_without_one_by_the_last_tenth(n_train, n_val):
    ids = np.arange(n_train + n_val, dtype=np.uint8)
    text = {"fingerprint": "", "tokenizer": Tokenizer(None), "counts": ids, "distinct": 0}
    judged = EncodedText(train=ids[:n_train], val=ids[n_train:], **text).evaluation_ids
    assert judged.tolist() == (ids[n_train:] if n_val > 1 else ids[:n_train][-max(2, n_train // 10) :]).tolist()


@given(st.data(), st.integers(1, 4), st.integers(1, 3))
def test_the_ngram_model_is_that_of_witten_and_bell(data, vocab_size, order):
    """Computed one by one: how often an id follows its context, mixed with what the shorter context says."""
    ids = st.lists(st.integers(0, vocab_size - 1), min_size=order + 1, max_size=40)
    train, val = data.draw(ids), data.draw(ids)
    grams = [tuple(train[i : i + order + 1]) for i in range(len(train) - order)]

    def probability(context: tuple[int, ...], wanted: int) -> float:
        following = [gram[-1] for gram in grams if gram[order - len(context) : order] == context]
        shorter = probability(context[1:], wanted) if context else 1 / vocab_size
        kinds = len({*following})
        return (following.count(wanted) + kinds * shorter) / (len(following) + kinds) if following else shorter

    found = ngram_probabilities(np.uint8(train), np.uint8(val), vocab_size=vocab_size, order=order)
    expected = [probability(tuple(val[i - order : i]), val[i]) for i in range(order, len(val))]
    assert found == pytest.approx(expected) and math.isclose(sum(probability((), c) for c in range(vocab_size)), 1)


@pytest.mark.parametrize(("distance", "window", "finds"), [(40, 64, True), (40, 40, True), (40, 39, False), (100, 64, False)])
def test_copies_within_the_window_make_a_text_easier(distance, window, finds):
    groups = np.random.default_rng(1).integers(0, 16, (20_000 // distance, 1, distance))
    ids = np.repeat(groups, 2, axis=1).astype(np.uint16).ravel()  # every group is followed by a copy of itself
    ratio = copying(ids, np.full(len(ids), 1 / 16), window=window)
    assert 0.5 < ratio < 0.65 if finds else 0.97 < ratio <= 1


@pytest.mark.parametrize("vocab_size", [1, 2, 50])
@pytest.mark.parametrize("length", [3, 4, 30, 1000])
def test_copying_never_makes_a_text_harder(vocab_size, length):
    train, val = (np.random.default_rng(n).integers(0, vocab_size, n).astype(np.uint8) for n in (500, length))
    probability = ngram_probabilities(train, val, vocab_size=vocab_size, order=2)
    assert 0 < copying(val[2:], probability, window=128) <= 1
