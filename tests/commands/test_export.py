"""`python -m chargpt export`: the run is found, the format's writer is called, and its result is published."""

import json
from pathlib import Path

import pytest
from exchange_helpers import publish_model
from helpers import publish_run

from chargpt.commands import export
from chargpt.model import GPTConfig
from chargpt.terminal import UserError
from chargpt.text.tokenizer import Tokenizer


@pytest.fixture
def run(installed, tmp_path):
    """A run in checkpoints/."""
    return publish_model(tmp_path / "checkpoints" / "my run", tokenizer=Tokenizer("\n abc"))


def test_the_destination_is_named_after_the_run(run, tmp_path, capsys):
    assert export.main(["my run", "--to", "hf"]) == 0
    assert json.loads((tmp_path / "my-run-hf" / "config.json").read_text())["vocab_size"] == 5
    assert export.main([str(run), "--to", "safetensors"]) == 0
    assert (tmp_path / "my-run.safetensors").is_file()
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said] == ["written", "use"] * 2
    assert said[0] == "written     my-run-hf" and "model='my-run-hf'" in said[1]


def test_an_earlier_export_is_replaced_only_by_force(run, tmp_path):
    export.main(["my run", "--to", "hf", "out"])
    (tmp_path / "out" / "README.md").write_text("edited")
    with pytest.raises(UserError, match="out: exists"):
        export.main(["my run", "--to", "hf", "out"])
    assert (tmp_path / "out" / "README.md").read_text() == "edited"
    export.main(["my run", "--to", "hf", "out", "--force"])
    assert (tmp_path / "out" / "README.md").read_text() != "edited"


def test_gguf_needs_its_package(run, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"--to gguf: needs the package gguf; run .* -m pip install gguf$"):
        export.main(["my run", "--to", "gguf"])


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux to count threads")
def test_an_export_starts_no_threads(programs, tmp_path):
    """Threads of torch would wait for one another: beside other programs, for minutes."""
    run = publish_run(tmp_path / "wide", shape=GPTConfig(n_layer=1, n_head=2, n_embd=128, block_size=8))
    code = f"""
import os, torch
from chargpt.commands import export
torch.set_num_threads(2)
def threads(): return len(os.listdir("/proc/self/task"))
before = threads()
export.main([{str(run)!r}, "--to", "hf", {str(tmp_path / "out")!r}])
print("more", threads() - before)
torch.ones(100_000).isfinite()
print("more", threads() - before)
"""
    done = programs.run(code=code, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().split("more ")[1:] == ["0\n", "1\n"]
