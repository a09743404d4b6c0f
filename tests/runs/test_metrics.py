"""A log is read back as it was written; damage, and values that no chart can show, are left out."""

import json
import os

import pytest

from chargpt.runs import metrics
from chargpt.runs.metrics import MetricsFile, MetricsLog, read_metrics


def test_what_is_written_is_read_back(tmp_path):
    file = MetricsFile(tmp_path, stage=1, step=-1)
    file.log(0, {"val/loss": 2.0, "sample": "a\nb\u2028"})
    file.log(10, {"train/loss": 1.5, "lr": 1e-3})
    file.log(20, {"train/loss": float("nan"), "lr": float("-inf"), "sample": "NaN"})
    file.close()
    for line in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]:
        json.loads(line, parse_constant=pytest.fail)  # JSON has no number that is not finite
    (log,) = read_metrics(tmp_path)
    assert log.curves == {"val/loss": [(0, 2.0)], "train/loss": [(10, 1.5)], "lr": [(10, 1e-3)]} and log.curve("none") == []
    assert log.samples == [(0, "a\nb\u2028"), (20, "NaN")]


def test_each_model_of_a_run_has_its_own_log_and_is_cut_by_its_own_steps(tmp_path):
    for stage, first in ((1, 0), (2, 20)):
        file = MetricsFile(tmp_path, stage=stage, step=first - 1)
        for step in (0, 10, 20):
            file.log(first + step, {"val/loss": float(stage)})
        file.close()
    logs = read_metrics(tmp_path)
    assert [log.stage for log in logs] == [1, 2]
    assert [step for log in logs for step, _ in log.curve("val/loss")] == [0, 10, 20, 20, 30, 40]
    MetricsFile(tmp_path, stage=2, step=30).close()  # as when a checkpoint of the second model is resumed
    assert [[step for step, _ in log.curve("val/loss")] for log in read_metrics(tmp_path)] == [[0, 10, 20], [20, 30]]
    MetricsFile(tmp_path, stage=2, step=19).close()  # before its first one
    assert [[step for step, _ in log.curve("val/loss")] for log in read_metrics(tmp_path)] == [[0, 10, 20]]


def test_damage_is_left_out(tmp_path):
    assert read_metrics(tmp_path) == [MetricsLog()]
    lines = ['{"step": 5, "a": 1}', '{"step": 3, "a": 2}', '{"step": true, "a": 3}', "[]", '{"a": 4}', '{"step": 6, "a": "x"}']
    lines += [
        '{"stage": "x", "step": 7}',
        '{"step": 7, "a": 1e300, "b": NaN, "c": false, "sample": 3, "d": 1' + "0" * 400 + "}",
        '{"step": 8, "a": 9}',
        "[" * 100_000,
        '{"step": 9',
    ]
    (tmp_path / "metrics.jsonl").write_bytes("\n".join(lines).encode() + b"\xff\0")
    (log,) = read_metrics(tmp_path)
    assert log.curves == {"a": [(5, 1.0), (8, 9.0)]} and log.samples == []


def test_a_log_of_a_stranger_is_read_in_little_memory_and_time(tmp_path, monkeypatch):
    """A file of 30 GB that holds nothing, and a line without an end."""
    monkeypatch.setattr(metrics, "MAX_READ", 2**24)
    with open(tmp_path / "metrics.jsonl", "w") as file:
        file.write('{"step": 1, "a": 2}\n' + "[" * 10**6 + '\n{"step": 2, "a": 3}\n')
        file.truncate(30 * 10**9)
    assert read_metrics(tmp_path)[0].curves == {"a": [(1, 2.0), (2, 3.0)]}
    MetricsFile(tmp_path, stage=1, step=1).close()
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1, "a": 2}\n'


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "metrics.jsonl")
    assert read_metrics(tmp_path) == [MetricsLog()]
