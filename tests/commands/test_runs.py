"""`python -m chargpt runs`: one line for each run, whatever its folder holds and whoever writes it meanwhile."""

import csv
import itertools
import json
import os
import threading
from pathlib import Path

import pytest
from helpers import publish_run, random_weights

from chargpt.commands import runs as listing
from chargpt.config import Config, OptimConfig, TrainConfig
from chargpt.errors import UserError
from chargpt.files import LOCK_NAME, is_locked
from chargpt.project import STATUS
from chargpt.runs.listing import RunState
from chargpt.runs.load import expand_patterns
from chargpt.runs.metrics import read_status
from chargpt.runs.run import lock_run
from chargpt.runs.stage import Progress
from chargpt.settings import Settings, Source


@pytest.fixture
def checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(listing, "project_root", lambda: tmp_path)
    return tmp_path / "checkpoints"


def listed(capsys, *arguments: str) -> list[str]:
    assert listing.main(list(arguments)) == 0
    return capsys.readouterr().out.splitlines()


def saved_at(run: Path, seconds: int) -> None:
    for path in run.glob("step-*/state.json"):
        os.utime(path, (seconds, seconds))


def test_a_line_says_text_size_loss_date_and_how_far(checkpoints, capsys):
    texts = ["/home/somebody/poems.txt", "/home/somebody/more.txt"]
    saved_at(publish_run(checkpoints / "poems", texts=texts), 1_700_000_000)
    head, line, note = listed(capsys)
    assert head.split() == ["run", "text", "parameters", "loss", "saved", "size", "steps"]
    size = sum(tensor.numel() for tensor in random_weights(1).values())
    assert line.startswith("poems  poems.txt and 1 more") and f" {size:,}  1.5000 " in line
    assert " 2023-11-1" in line and line.endswith("500 of 3,000") and "newest first" in note and "/home" not in line


def test_the_newest_run_is_first_and_the_lowest_loss_of_a_text_has_a_star(checkpoints, capsys):
    for i, (name, loss, text) in enumerate([("a", 1.5, "1"), ("b", 1.25, "1"), ("c", 1.0, "2"), ("d", None, "1")]):
        saved_at(publish_run(checkpoints / name, val_loss=loss, fingerprint=text * 64), 1_700_000_000 + i)
    lines = listed(capsys)[1:5]
    assert [line.split()[0] for line in lines] == ["d", "c", "b", "a"]
    assert ["*" in line for line in lines] == [False, False, True, False]  # c is the only run of its text


def test_a_run_that_patience_has_ended_says_so(checkpoints, capsys):
    progress = Progress(step=500, evaluated=500, val_loss=1.5, best_loss=1.4, lowest_loss=1.4, best_step=300, without_gain=3)
    config = Config(train=TrainConfig(patience=3))
    publish_run(checkpoints / "a", shape=config.model, config=config, progress=progress)
    assert listed(capsys)[1].endswith("500 of 3,000, ended early")


def test_a_damaged_run_is_one_line_and_hides_no_other(checkpoints, capsys):
    publish_run(checkpoints / "good")
    publish_run(checkpoints / "partly", steps=(500, 600))
    (checkpoints / "partly" / "step-00000600" / "state.json").write_bytes(b"\xff" * 100)
    damaged = publish_run(checkpoints / "damaged\x1b[2J\nforged") / "step-00000500" / "state.json"
    damaged.write_text("{}")
    (checkpoints / "empty" / "step-00000010").mkdir(parents=True)
    (checkpoints / "new").mkdir()
    (checkpoints / "README.md").write_text("no run")
    lines = listed(capsys)
    assert len(lines) == 1 + 2 + 1 + 3 and not any("\x1b" in line for line in lines)
    assert "500 of 3,000" in next(line for line in lines if line.startswith("partly"))  # its newest state that can be read
    assert "new: has no checkpoint yet" == lines[-1] and "empty: no checkpoint can be used" in lines[-2]
    assert "damaged" in lines[-3]
    states = [(run["run"][:4], run["state"], bool(run["reason"])) for run in map(json.loads, listed(capsys, "--json"))]
    assert states[-3:] == [("dama", "damaged", True), ("empt", "damaged", True), ("new", "new", True)]


def test_patterns_are_the_runs_that_match(checkpoints, capsys):
    for name in ("poems", "poems-teacher", "haiku", "a[1]"):
        publish_run(checkpoints / name)
    publish_run(checkpoints / "elsewhere" / "poems-3")
    assert expand_patterns(["poems*", "haiku", "poems"], checkpoints) == ["poems", "poems-teacher", "haiku"]
    assert expand_patterns(["a[1]"], checkpoints) == ["a[1]"]
    assert [Path(name).name for name in expand_patterns([str(checkpoints / "else*" / "*")], checkpoints)] == ["poems-3"]
    assert len(listed(capsys, "poems*")) == 4
    with pytest.raises(UserError, match="no run matches this pattern; use one of a"):
        expand_patterns(["sonnets*"], checkpoints)


def test_a_table_for_programs_has_what_is_known_of_each_run_and_the_settings_in_which_they_differ(checkpoints, capsys):
    for rate, seed in itertools.product((1e-3, 3e-3), (1, 2)):
        config = Config(optim=OptimConfig(learning_rate=rate), train=TrainConfig(seed=seed, max_steps=3000))
        given = dict.fromkeys(("optim.learning_rate", "train.seed", "train.max_steps"), Source.USER)
        settings = Settings(config, given)
        publish_run(checkpoints / f"a\t{rate}-{seed}", settings=settings, shape=config.model, val_loss=rate + seed)
    found = [json.loads(line) for line in listed(capsys, "--json")]
    head, *rows = csv.reader(listed(capsys, "--tsv"), "excel-tab")
    assert head[-2:] == ["optim.learning_rate", "train.seed"] and "train.max_steps" not in head
    for row, run in zip((dict(zip(head, row)) for row in rows), found, strict=True):
        assert float(row["loss"]) == run["loss"] and int(row["steps"]) == run["steps"] and row["state"] == run["state"]
        assert float(row["optim.learning_rate"]) == run["settings"]["optim.learning_rate"] and "\t" not in row["run"]
    groups = [line for line in listed(capsys) if "over 2 seeds" in line]
    assert {line.partition("(")[2] for line in groups} == {"optim.learning_rate=0.001)", "optim.learning_rate=0.003)"}


def test_the_state_of_a_run_is_for_programs_too(checkpoints, capsys):
    """Whoever holds its lock trains it; a killed process holds none."""
    publish_run(checkpoints / "stopped")
    done = Progress(step=3_000, evaluated=3_000, val_loss=1.5, best_loss=1.5, lowest_loss=1.5, best_step=3_000)
    publish_run(checkpoints / "finished", progress=done, steps=(3_000,))
    publish_run(checkpoints / "alive")
    (checkpoints / "new").mkdir()
    with lock_run(checkpoints / "alive"):
        assert next(line for line in listed(capsys) if line.startswith("alive")).endswith("500 of 3,000, training")
        found = {run["run"]: run for run in map(json.loads, listed(capsys, "--json"))}
    states = {"stopped": "stopped", "finished": "finished", "alive": "training", "new": "new"}
    assert {name: run["state"] for name, run in found.items()} == states
    assert found["alive"]["step"] == 500 and found["alive"]["steps"] == 3_000 and found["alive"]["bytes"] > 1_000
    assert json.loads(listed(capsys, "--json", "alive")[0])["state"] == "stopped"
    assert not (checkpoints / "new" / LOCK_NAME).exists(), "looking makes no file"


def test_looking_never_keeps_a_run_from_training(checkpoints):
    folder = publish_run(checkpoints / "run")
    lock_run(folder).release()
    stop = threading.Event()
    looking = threading.Thread(target=lambda: [is_locked(folder) for _ in iter(stop.is_set, True)])
    looking.start()
    try:
        for _ in range(50):
            lock_run(folder).release()
    finally:
        stop.set()
        looking.join()


@pytest.mark.parametrize(
    "content", [b"", b"\xff{", b"[1]", b"{}", b'{"state": "odd"}', b"[" * 100_000, b'{"state": 1, "step": "2"}']
)
def test_a_status_that_cannot_be_understood_is_none(content, checkpoints):
    folder = publish_run(checkpoints / "run")
    (folder / STATUS).write_bytes(content)
    assert read_status(folder) is None and RunState.of(folder).state == "stopped"
