"""`python -m chargpt import`: its options, and which reader a folder gets."""

import pytest
import torch
from nanogpt_files import SHAPE, Model, write_files

import chargpt
import sample
from chargpt import __main__ as verbs
from chargpt.commands import import_run as importing
from chargpt.sampling.loaded_model import load_model


@pytest.mark.parametrize("given", ["", "ckpt.pt"])
def test_a_checkpoint_of_nanogpt_becomes_a_run(tmp_path, capsys, given):
    torch.manual_seed(0)
    model = Model(3, **SHAPE)
    folder = write_files(tmp_path / "out", model, None, "abc", step=7)
    (folder / "meta.pkl").rename(tmp_path / "meta.pkl")
    run = tmp_path / "run"
    assert importing.main([str(folder / given), "--run", str(run), "--meta", str(tmp_path / "meta.pkl"), "train.seed=3"]) == 0
    loaded, _ = load_model(str(run), tmp_path, device="cpu")
    assert loaded.step == 7 and loaded.config.train.seed == 3
    assert (loaded.logits("abca") - model(torch.tensor([[0, 1, 2, 0]]))[0]).abs().max() < 1e-5
    assert "nanoGPT, step 7" in capsys.readouterr().out


def test_once_installed_a_run_is_made_and_found_in_the_current_folder(installed, text, capsys):
    """By every verb that takes the name of a run, by sample.py and by the library."""
    model = Model(len(set(text.read_text())), **SHAPE)
    folder = write_files(installed / "out", model, None, "".join(sorted(set(text.read_text()))), step=7)
    assert importing.main([str(folder), str(text), "--run", "new"]) == 0
    assert (installed / "checkpoints" / "new" / "config.yaml").is_file() and (installed / "data" / "cache").is_dir()
    (installed / "short.txt").write_text("the sea")
    for verb, *words in (
        ("export", "new", "--to", "safetensors"),
        ("score", "new", "short.txt"),
        ("losses", "new"),
        ("trace", "new", "short.txt"),
    ):
        assert verbs.main([verb, *words]) == 0, verb
    assert sample.main(["new", "--length", "5"]) == 0
    assert chargpt.load("new").step == chargpt.load().step == 7
