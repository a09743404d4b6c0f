"""`remove` deletes what is named, what is old, what only --resume needs, and what is made again; nothing else."""

import os
import re
import time
from pathlib import Path

import pytest
from helpers import TINY_FILE, publish_run

import chargpt
import train
from chargpt.commands import remove
from chargpt.errors import UserError


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(remove, "project_root", lambda: tmp_path)
    monkeypatch.setattr(remove, "user_cache_folder", lambda: tmp_path / "user")
    return tmp_path


def test_the_best_weights_write_and_are_trained_from_and_the_rest_is_gone(root, text, capsys):
    folder, own = root / "checkpoints" / "run", [f"data.cache={root}/cache", "runtime.threads=1", "train.sample_length=0"]
    first = [str(text), "--config", TINY_FILE, "train.max_steps=6", "train.eval_interval=2", "checkpoint.keep=3", *own]
    assert train.main([*first, "--run", str(folder)]) == 0
    before, (state,) = chargpt.load(folder).generate("The ", seed=1), chargpt.runs(folder)
    assert remove.main(["run", "--keep-best", "--yes"]) == 0 == remove.main(["run", "--keep-best", "--yes"])
    assert re.search("all but its best weights, [0-9.]+ MB", capsys.readouterr().out)
    (left,) = chargpt.runs(folder)
    assert chargpt.load(folder).generate("The ", seed=1) == before and left.bytes < state.bytes / 2
    assert (left.state, left.step, left.loss) == (state.state, state.step, state.loss) == ("finished", 6, state.loss)
    assert not list(folder.rglob("training.safetensors"))
    with pytest.raises(UserError, match="only the weights are left, .*; begin a new one with --init-from"):
        train.main(["--resume", "--run", str(folder), *own])
    assert train.main([*first, "--run", str(folder), "--continue"]) == 0
    assert re.search("^done +this run is finished, and only what writes is left", capsys.readouterr().out, re.MULTILINE)
    assert train.main([*first, "--run", str(root / "more"), "--init-from", str(folder)]) == 0


def test_what_is_old_and_what_is_made_again_is_removed(root, capsys):
    for name, days in (("old", 8), ("new", 6)):
        run = publish_run(root / "checkpoints" / name)
        for path in run.glob("step-*/state.json"):
            os.utime(path, (time.time() - days * 86400,) * 2)
    (root / "data" / "cache").mkdir(parents=True)
    (root / "user" / "chargpt").mkdir(parents=True)
    assert remove.main(["new", "--older-than", "7d", "--yes"]) == 0 and len(chargpt.runs(root / "checkpoints" / "*")) == 2
    (other := root / "checkpoints" / "old" / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match="thesis.tex in this folder is not of the run"):
        remove.main(["--older-than", "7d", "--yes"])
    other.unlink()
    assert remove.main(["--older-than", "7d", "--yes"]) == 0 and os.listdir(root / "checkpoints") == ["new"]
    assert remove.main(["--cache", "--yes"]) == 0 and os.listdir(root / "checkpoints") == ["new"]
    assert not (root / "data" / "cache").exists() and os.listdir(root / "user") == []
    for words, says in (
        ([], "RUN: none given"),
        (["--keep-best"], "RUN: none given"),
        (["--older-than", "7"], "use a time such as"),
    ):
        with pytest.raises(UserError, match=says):
            remove.main(words)
