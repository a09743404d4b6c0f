"""A run that goes on from another one, on its text with new chapters: what it says, records, and how it is resumed."""

import json
import random
import re
import shutil
from pathlib import Path

import pytest

import train
from chargpt.commands import report
from chargpt.runs.checkpoint import newest
from chargpt.runs.checkpoint_schema import SavedState
from chargpt.runs.metrics import KNOWN, NEW, read_metrics


def state_of(run: Path) -> SavedState:
    return newest(run)[0].state


@pytest.fixture
def book(tmp_path):
    """Trains on a folder with so many chapters of a book; the run is named after their number."""
    draw, words = random.Random(5), "the sea and stone under a moving light keeps its own hours".split()
    pages = "".join(f"{draw.choice(words)}{number % 97} {draw.choice(words)}\n" for number in range(2_000))
    folder = tmp_path / "book"
    folder.mkdir()

    def trained(chapters: int, *words: str) -> Path:
        for number in range(chapters):
            (folder / f"{number:02}.txt").write_text(pages[3_000 * number : 3_000 * (number + 1)], encoding="utf-8")
        run = tmp_path / f"run{chapters}"
        given = [f"data.cache={tmp_path}/cache", "train.sample_length=0", "runtime.threads=1", *words]
        assert train.main([str(folder), "--run", str(run), *given]) == 0
        return run

    return trained


def test_new_chapters_are_learned_beside_the_old_ones(book, tmp_path, capsys):
    first = book(6, "--config", "tiny", "train.max_steps=20", "train.eval_interval=10")
    assert "grown" not in "".join(capsys.readouterr())
    second = book(7, "--init-from", str(first), "--epochs", "1")
    said = "".join(capsys.readouterr())
    lines = [line for line in said.splitlines() if line.startswith("grown ")]
    assert len(lines) == 2 and "3,001 characters are new" in lines[0], said
    assert "too good" not in said and "on what run run6 holds out" in lines[1] and "on the new text" in lines[1]
    log, progress = read_metrics(second)[-1], state_of(second).progress
    for name in (KNOWN, NEW):
        losses = dict(log.curve(name))
        assert f"{losses[0]:.3f} before, {losses[progress.best_step]:.3f} now" in lines[1]
    assert report.main([str(first), str(second), "--out", str(tmp_path / "both.html")]) == 0
    page = (tmp_path / "both.html").read_text(encoding="utf-8")
    shared = re.search(r"Losses on the ([\d,]+) characters that all hold out: run7 [\d.]+, run6 [\d.]+\.", page)
    assert shared and shared[1] == "1,801" and "cannot be compared" not in "".join(capsys.readouterr())
    third = book(8, "--init-from", str(second), "--epochs", "0.1")
    growth = state_of(third).growth
    assert growth is not None and growth.earlier == [state_of(run).fingerprint for run in (second, first)]


def test_such_a_run_is_resumed_without_the_texts_before_it(book, tmp_path, capsys):
    first = book(6, "--config", "tiny", "train.max_steps=10")
    second = book(7, "--init-from", str(first), "--epochs", "0.1")
    shutil.rmtree(tmp_path / "cache")
    capsys.readouterr()
    before = state_of(second)
    again = ["--resume", "--run", str(second), f"data.cache={tmp_path}/cache"]
    assert train.main([*again, f"train.max_steps={before.stage.length.steps + 2}"]) == 0
    after = state_of(second)
    assert (after.fingerprint, after.growth) == (before.fingerprint, before.growth)
    assert after.progress.step == before.progress.step + 2 and "has changed" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("gone", [0, 1])
def test_a_text_in_no_cache_is_not_taken_for_new(gone, book, tmp_path, capsys):
    """Neither that of the run, nor that of a run before it, whose text it does not repeat as a whole."""
    first = book(6, "--config", "tiny", "train.max_steps=2")
    second = book(7, "--init-from", str(first), "--epochs", "0.1")
    shutil.rmtree(tmp_path / "cache" / state_of((first, second)[gone]).fingerprint)
    capsys.readouterr()
    third = book(8, "--init-from", str(second), "--epochs", "0.1")
    said = "".join(capsys.readouterr())
    assert state_of(third).growth is None and "grown " not in said
    assert "no copy of all that it has read is in the cache; it may have learned from your validation text" in said


def test_a_text_that_has_nothing_of_the_old_one_is_read_as_ever(book, tmp_path, capsys):
    first = book(6, "--config", "tiny", "train.max_steps=10")
    other = tmp_path / "other.txt"
    other.write_text("".join(f"{number} bottles of beer on the wall\n" for number in range(300)), encoding="utf-8")
    words = [f"data.cache={tmp_path}/cache", "--init-from", str(first), "--epochs", "0.2", "train.sample_length=0"]
    assert train.main([str(other), "--run", str(tmp_path / "run"), *words]) == 0
    assert "grown" not in "".join(capsys.readouterr())
    saved = json.loads((newest(tmp_path / "run")[0].path / "state.json").read_text())["state"]
    assert saved["growth"] == {"earlier": [state_of(first).fingerprint], "stretches": ""}
