"""Every number logged once, wherever it goes, and logging never ends a training."""

import io
import json
import math
import shutil

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from chargpt.training.metrics import Metrics


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]


def curve(folder, name):
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    return {point.step: point.value for point in events.Scalars(name)}


def test_tensorboard_and_jsonl_hold_the_same(tmp_path):
    metrics = Metrics(tmp_path)
    for step in (0, 10, 20):
        metrics.log(step, {"val/loss": 3.0 - step / 16, "sample": "# not a <b>heading</b>\n\u2028中"})
    metrics.close()
    assert [line["step"] for line in lines(tmp_path)] == [0, 10, 20]
    assert {line["step"]: line["val/loss"] for line in lines(tmp_path)} == pytest.approx(curve(tmp_path, "val/loss"))
    assert lines(tmp_path)[0]["sample"] == "# not a <b>heading</b>\n\u2028中"
    events = EventAccumulator(str(tmp_path), size_guidance={"tensors": 0})
    events.Reload()
    text = events.Tensors("sample/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "    # not a <b>heading</b>" in text


def test_pictures_are_for_tensorboard_alone(tmp_path):
    picture = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    metrics = Metrics(tmp_path)
    metrics.log(7, {"val/loss": 1.0, "attention": picture})
    metrics.close()
    assert lines(tmp_path) == [{"step": 7, "val/loss": 1.0}]
    events = EventAccumulator(str(tmp_path), size_guidance={"images": 0})
    events.Reload()
    (image,) = events.Images("attention")
    assert image.step == 7 and np.array_equal(np.asarray(Image.open(io.BytesIO(image.encoded_image_string))), picture)


@pytest.mark.parametrize("step, expected", [(-1, [0, 5, 10, 15]), (0, [0, 5, 10, 15]), (10, [0, 5, 10, 15])])
def test_a_resumed_run_has_every_step_once(tmp_path, step, expected):
    crashed = Metrics(tmp_path)
    for logged in (0, 5, 10, 15, 20):
        crashed.log(logged, {"train/loss": 100.0 + logged})
    crashed.flush()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 25, "train/lo')  # a kill in the middle of a line
    resumed = Metrics(tmp_path, step=step)
    for logged in range(step // 5 * 5 + 5, 20, 5):
        resumed.log(logged, {"train/loss": 200.0 + logged})
    resumed.close()
    assert [line["step"] for line in lines(tmp_path)] == expected
    values = {s: (100.0 if s <= step else 200.0) + s for s in expected}
    assert {line["step"]: line["train/loss"] for line in lines(tmp_path)} == values
    assert curve(tmp_path, "train/loss") == values


def test_a_folder_that_vanishes_costs_one_warning(tmp_path, capsys):
    folder = tmp_path / "run"
    folder.mkdir()
    metrics = Metrics(folder)
    metrics.log(1, {"train/loss": 1.0})
    shutil.rmtree(folder)
    for step in range(2, 6):
        metrics.log(step, {"train/loss": 1.0})
        metrics.flush()
    metrics.close()
    assert capsys.readouterr().out.count("warning") == 1


def test_a_folder_that_cannot_be_made_costs_one_warning(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    metrics = Metrics(tmp_path / "file" / "run")
    metrics.log(1, {"train/loss": 1.0})
    metrics.close()
    assert capsys.readouterr().out.count("warning") == 1


def test_numbers_that_are_not_finite_leave_valid_json(tmp_path):
    metrics = Metrics(tmp_path)
    metrics.log(1, {"grad_norm": math.inf, "train/loss": math.nan})
    metrics.close()
    assert lines(tmp_path) == [{"step": 1, "grad_norm": None, "train/loss": None}]
