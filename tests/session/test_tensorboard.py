"""Every number logged once, wherever it goes, and logging never ends a training."""

import contextlib
import json
import math
import shutil

import pytest
from tensorboard import plugin_util
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from chargpt.runs.run import Run
from chargpt.runs.stage import Progress
from chargpt.session.journal import Journal
from chargpt.session.tensorboard import compared_settings
from chargpt.settings import Settings, Source


@contextlib.contextmanager
def recording(run, *, step=None):
    """The journal of a new run, or of one that is resumed at `step`, while it records."""
    journal, settings = Journal(), Settings().choose("", optim={"learning_rate": 0.01})
    with journal.recording(run, settings, progress=Progress(step=step or 0), steps=99, is_new=step is None):
        yield journal


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]


def curve(folder, name):
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    return {point.step: point.value for point in events.Scalars(name)}


def test_tensorboard_and_jsonl_hold_the_same(tmp_path):
    with recording(Run(tmp_path)) as journal:
        for step in (0, 10, 20):
            bits = {"val/bits_per_char": 1.0}
            journal.record(step, {"val/loss": 3.0 - step / 16, "sample": "# not a <b>heading</b>\n\u2028中", **bits})
    assert [line["step"] for line in lines(tmp_path)] == [0, 10, 20]
    assert {line["step"]: line["val/loss"] for line in lines(tmp_path)} == pytest.approx(curve(tmp_path, "val/loss"))
    assert lines(tmp_path)[0]["sample"] == "# not a <b>heading</b>\n\u2028中"
    events = EventAccumulator(str(tmp_path), size_guidance={"tensors": 0})
    events.Reload()
    text = events.Tensors("sample/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "    # not a <b>heading</b>" in text


@pytest.mark.parametrize("step, expected", [(None, [0, 5, 10, 15]), (0, [0, 5, 10, 15]), (10, [0, 5, 10, 15])])
def test_a_resumed_run_has_every_step_once(tmp_path, step, expected):
    run = Run(tmp_path)
    crashed = recording(run)
    journal = crashed.__enter__()
    for logged in (0, 5, 10, 15, 20):
        journal.record(logged, {"train/loss": 100.0 + logged})
    journal.flush()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 25, "train/lo')  # a kill in the middle of a line
    with recording(run, step=step) as resumed:
        for logged in range(0 if step is None else step + 5, 20, 5):
            resumed.record(logged, {"train/loss": 200.0 + logged})
    assert [line["step"] for line in lines(tmp_path)] == expected
    values = {s: (100.0 if step is not None and s <= step else 200.0) + s for s in expected}
    assert {line["step"]: line["train/loss"] for line in lines(tmp_path)} == values
    assert curve(tmp_path, "train/loss") == values


def test_a_folder_that_vanishes_costs_one_warning(tmp_path, capsys):
    folder = tmp_path / "run"
    with recording(Run(folder)) as journal:
        journal.record(1, {"train/loss": 1.0})
        shutil.rmtree(folder)
        for step in range(2, 6):
            journal.record(step, {"train/loss": 1.0})
            journal.flush()
    assert capsys.readouterr().out.count("warning") == 1


def test_numbers_that_are_not_finite_leave_valid_json_and_a_folder_cannot_forge_a_message(tmp_path, capsys):
    with recording(Run(tmp_path)) as journal:
        journal.record(1, {"grad_norm": math.inf, "train/loss": math.nan})
    assert lines(tmp_path) == [{"stage": 1, "step": 1, "grad_norm": None, "train/loss": None}]
    (tmp_path / "a\nforged\x1b[2J" / "metrics.jsonl").mkdir(parents=True)
    with recording(Run(tmp_path / "a\nforged\x1b[2J")) as journal:
        journal.record(1, {"train/loss": 1.0})
    out = capsys.readouterr().out
    assert out.count("\n") == 1 and "\x1b" not in out


def test_tensorboard_gets_the_charts_and_the_settings_once(tmp_path):
    run = Run(tmp_path)
    for step in (None, 10, 20):  # a run that was resumed twice
        with recording(run, step=step) as journal:
            journal.record((step or 0) + 10, {"train/loss": 1.0})
    events = EventAccumulator(str(tmp_path), size_guidance={"tensors": 0})
    events.Reload()
    (layout,) = events.Tensors("custom_scalars__config__")
    charts = layout_pb2.Layout.FromString(layout.tensor_proto.string_val[0]).category[0].chart
    assert list(charts[0].multiline.tag) == ["^train/loss$", "^val/loss$"]
    start = HParamsPluginData.FromString(
        events.PluginTagToContent("hparams")["_hparams_/session_start_info"]
    ).session_start_info
    assert start.hparams["optim.learning_rate"].number_value == 0.01
    files = sorted(tmp_path.glob("events.*"))
    assert [b"session_start_info" in file.read_bytes() for file in files] == [True, False, False]


@pytest.mark.parametrize(
    "sample, html",
    [
        ("a < b && c &lt; d", "a &lt; b &amp;&amp; c &amp;lt; d"),
        ("x</pre><script>alert(1)</script>", "x&lt;/pre&gt;&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("<img src=x onerror=alert(1)>", "&lt;img src=x onerror=alert(1)&gt;"),
        ("# heading\n```\n[link](javascript:alert(1))", "# heading\n```\n[link](javascript:alert(1))"),
        ("\x02amp\x03 \x1b]0;title\x07", "\\x02amp\\x03 \\x1b]0;title\\x07"),
    ],
)
def test_tensorboard_shows_a_sample_as_it_is_and_runs_nothing_in_it(tmp_path, sample, html):
    with recording(Run(tmp_path)) as journal:
        journal.record(0, {"sample": sample})
    events = EventAccumulator(str(tmp_path), size_guidance={"tensors": 0})
    events.Reload()
    markdown = events.Tensors("sample/text_summary")[0].tensor_proto.string_val[0]
    assert plugin_util.markdown_to_safe_html(markdown) == f"<pre><code>{html}\n</code></pre>"  # what its page inserts


def test_runs_are_compared_by_what_was_given_and_by_what_the_program_chooses():
    assert compared_settings(Settings()) == {"model.n_embd": 128, "model.n_layer": 4, "optim.learning_rate": 3e-3}
    given = {"optim": {"betas": [0.9, 0.95]}, "train": {"seed": 7, "max_steps": 9}, "checkpoint": {"keep": 4}}
    by_user, by_preset = (
        compared_settings(Settings().give(given, source=source, where="")) for source in (Source.USER, Source.PRESET)
    )
    assert dict(by_user.items() - by_preset.items()) == {"optim.betas": "[0.9, 0.95]", "train.seed": 7, "train.max_steps": 9}
    assert by_preset == compared_settings(Settings())
