"""Which run and which checkpoint a name means, and the model in it."""

import os
from pathlib import Path

import pytest
import torch
from helpers import TOKENIZER, publish_run

from chargpt.runs.load import find_checkpoint, find_run, restore_model
from model import GPT


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return publish_run(tmp_path_factory.mktemp("runs") / "tiny", steps=(500, 1000))


def test_a_run_is_found_by_name_by_path_and_by_being_the_newest(tmp_path, monkeypatch):
    old, new = (publish_run(tmp_path / name) for name in ("old", "new"))
    (tmp_path / "no-run").mkdir()
    for run, time in ((old, 1), (new, 2)):
        os.utime(run / "step-00000500", (time, time))
    assert find_run(None, tmp_path) == find_run("new", tmp_path) == find_run(str(new), tmp_path / "elsewhere") == new
    monkeypatch.chdir(old)
    assert find_run(".", tmp_path) == Path(".") and find_run("../new", tmp_path).samefile(new)
    assert find_run("old", tmp_path) == old


def test_a_run_writes_with_its_best_checkpoint_and_a_step_folder_with_its_own(run):
    assert find_checkpoint(str(run), Path())[0].step == 500
    assert find_checkpoint(f"{run}/step-00001000/", Path())[0].step == 1000


def test_a_model_comes_back_as_it_was(run):
    checkpoint, _ = find_checkpoint(f"{run}/step-00001000", Path())
    random_state = torch.get_rng_state()
    model, tokenizer, config = restore_model(checkpoint)
    assert torch.equal(torch.get_rng_state(), random_state)
    torch.manual_seed(1000)
    original = GPT(config.model, tokenizer.vocab_size)
    assert tokenizer == TOKENIZER
    assert all(torch.equal(a, b) for a, b in zip(original.parameters(), model.parameters(), strict=True))
