"""A report measures what the other verbs measure, and says what it could not."""

import numpy as np
import pytest
from helpers import publish_run

from chargpt.analysis.copies import novelty
from chargpt.analysis.measured_run import WHOLE, Effort, extreme_lines, measure_run, quick, score_lines
from chargpt.analysis.scored_text import Line
from chargpt.commands.common import load_run
from chargpt.text.suffix_array import open_or_make_index

EFFORT = Effort(characters=400, sample_length=30, sample_seconds=10)


def test_a_run_is_measured_on_its_text(run, corpus):
    loaded = load_run(str(run), device="cpu")
    report = measure_run(loaded, corpus, index=open_or_make_index(corpus), effort=EFFORT)
    again = measure_run(loaded, corpus, index=open_or_make_index(corpus), effort=EFFORT)
    assert report.scored == 400 and report.losses == again.losses and report.copies == again.copies and report.missing == []
    part = corpus.tokenizer.decode(corpus.val[:401])
    assert report.losses.loss == pytest.approx(loaded.score(part), abs=1e-5)
    assert f"{len(corpus.train):,} for training and {len(corpus.val):,} for validation" in str(report.corpus)
    assert report.training_characters == len(corpus.train) and all(len(text) == 30 for text in report.copies.texts)
    assert report.heads.weights.shape[-1] == loaded.model.config.block_size
    assert report.worst[0].mean >= report.worst[-1].mean > report.best[-1].mean >= report.best[0].mean
    lines = score_lines(loaded, corpus.val[:401].astype(np.int64))
    assert "".join(line.text for line in lines) == part
    half = loaded.model.config.block_size // 2
    assert sum(line.total for line in lines) * np.log(2) / 400 == pytest.approx(loaded.score(part, stride=half), abs=1e-5)


def test_samples_are_drawn_and_compared_with_as_much_text_that_was_not_read(run, corpus):
    index = open_or_make_index(corpus)
    copies = measure_run(load_run(str(run), device="cpu"), corpus, index=index, effort=EFFORT).copies
    assert len(set(copies.texts)) == len(copies.texts) == 3  # at temperature 0 they would be equal
    assert copies.unseen == novelty([index.longest_matches(corpus.val[: 3 * 30])])


def test_without_its_text_a_run_has_its_log_and_settings_and_no_path_is_told(run, corpus):
    report = measure_run(load_run(str(run), device="cpu"), None, index=None, effort=EFFORT)
    assert report.losses is report.copies is report.heads is report.ngram_loss is None and len(report.missing) == 1
    assert report.state.text_names == ["poems.txt"]


def test_an_attention_that_cannot_be_shown_is_missing(run, corpus, monkeypatch):
    monkeypatch.setattr("chargpt.model.CausalSelfAttention.reference", lambda self, x, rotary: (x, x))
    report = measure_run(load_run(str(run), device="cpu"), corpus, index=None, effort=EFFORT)
    assert report.heads is None and report.losses and "its heads attend to: model.py: CausalSelf" in report.missing[0]


def test_the_last_model_of_a_run_has_the_log_of_the_run(tmp_path):
    publish_run(publish_run(tmp_path / "run") / "stage-2", number=2)
    (tmp_path / "run" / "metrics.jsonl").write_text('{"stage": 2, "step": 7, "val/loss": 2}\n')
    report = measure_run(load_run(str(tmp_path / "run"), device="cpu"), None, index=None, effort=EFFORT)
    assert (report.name, report.state.stage.number, report.log.curve("val/loss")) == ("run", 2, [(7, 2.0)])


def test_extreme_lines_are_long_and_listed_once():
    texts = ["short\n", "a line that repeats\n", "a line that repeats\n", "another long line\n", "the third long line\n"]
    texts.append("the fourth line\n")
    lines = [Line(i, text, np.full(len(text), float(i))) for i, text in enumerate(texts)]
    assert [[line.number for line in found] for found in extreme_lines(lines)] == [[5, 4], [1, 3]]
    assert extreme_lines(lines[:2]) == ([], [])


def test_a_quick_report_measures_less_of_a_large_model():
    efforts = [quick(parameters) for parameters in (10**9, 2_000_000, 1)]
    assert [effort.characters for effort in efforts] == [256, 5000, 20_000] and efforts[2].characters < WHOLE.characters
