"""A log is read back as it was written; damage, and values that no chart can show, are left out."""

import os

import numpy as np
import pytest
import torch
from helpers import SHAPE

from chargpt.analysis.metrics_log import extra_metrics, read_metrics
from chargpt.config import Config, TrainConfig
from chargpt.model import GPT
from chargpt.session.journal import Journal
from chargpt.training.trainer import Step


def test_what_a_training_logs_is_read_back(tmp_path):
    journal = Journal()
    with journal.recording(tmp_path, Config(), step=0, is_new=True):
        journal.record_evaluation(0, 2.0, sample="a\nb")
        journal.record_training(10, 1.5, Step(1.4, 0.7, 1e-3), chars_per_second=500.0)
        journal.record_training(20, float("nan"), Step(1.4, 0.7, 1e-3), chars_per_second=1000.0)
    log = read_metrics(tmp_path)
    assert log.curve("val/loss") == [(0, 2.0)] and log.curve("train/loss") == [(10, 1.5)] and log.curve("none") == []
    assert log.samples == [(0, "a\nb")] and log.last_step == 20
    assert log.training_seconds(1000) == pytest.approx(10 * 1000 / 500 + 10 * 1000 / 1000)


def test_damage_is_left_out(tmp_path):
    assert read_metrics(tmp_path).curves == {} and read_metrics(tmp_path).last_step == 0
    lines = ['{"step": 5, "a": 1}', '{"step": 3, "a": 2}', '{"step": true, "a": 3}', "[]", '{"a": 4}', '{"step": 6, "a": "x"}']
    lines += ['{"step": 7, "a": 1e300, "b": NaN, "c": false, "sample": 3}', '{"step": 8, "a": 9}', "[" * 100_000, '{"step": 9']
    (tmp_path / "metrics.jsonl").write_bytes("\n".join(lines).encode() + b"\xff\0")
    log = read_metrics(tmp_path)
    assert log.curves == {"a": [(5, 1.0), (8, 9.0)]} and log.samples == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "metrics.jsonl")
    assert read_metrics(tmp_path).curves == {}


def test_heads_are_drawn_on_request_and_the_model_stays_as_it_was(corpus):
    model = GPT(SHAPE, corpus.tokenizer.vocab_size)
    before = torch.get_rng_state()
    assert extra_metrics(model, corpus, TrainConfig(), sample="", loss=1.0) == {}
    metrics = extra_metrics(model, corpus, TrainConfig(log_attention=True), sample="the sea", loss=1.0)
    assert metrics["novelty/longest_copy"] >= 4 and metrics["attention"].dtype == np.uint8 and metrics["attention"].ndim == 3
    assert model.training and torch.equal(torch.get_rng_state(), before)
