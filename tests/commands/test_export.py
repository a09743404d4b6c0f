"""`python -m chargpt export`: the run is found, the format's writer is called, and its result is published."""

import json
import os
import subprocess
import sys
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
    assert [line.split()[0] for line in said] == ["run", "written", "use"] * 2
    assert "parameters" in said[0] and said[1] == "written     my-run-hf" and "model='my-run-hf'" in said[2]


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


# The warm-up is in measure_export.
MEMORY = """
import pathlib, sys
sys.path[:0] = [".", "tests/benchmarks"]
import export_memory
from chargpt.exchange import model_card

export_memory.LARGE = {"n_layer": 4, "n_head": 4, "n_embd": 256, "block_size": 64}
model_card.SAMPLE_LENGTH = 5
folder = pathlib.Path(sys.argv[1])
size = export_memory.make_runs(folder)
print(*(export_memory.measure_export(folder, target)["export"] / size for target in sys.argv[2:]))
"""


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc of Linux")
def test_an_export_takes_twice_the_size_of_the_model(tmp_path):
    """Reading a run takes that much by itself. A third copy would show; 0.6 is for tensors and activations in between."""
    command = [sys.executable, "-c", MEMORY, str(tmp_path), "safetensors", "hf", "html"]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}  # what is freed does not stay with the process
    done = subprocess.run(command, cwd=Path(__file__).parents[2], env=environment, capture_output=True, text=True, check=True)
    peaks = [float(word) for word in done.stdout.split()]
    assert len(peaks) == 3 and all(1 < peak < 2.6 for peak in peaks), peaks


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux to count threads")
@pytest.mark.parametrize("target", ["hf", "html", "safetensors"])
def test_an_export_starts_no_threads(programs, tmp_path, target):
    """Threads of torch would wait for one another: beside other programs, for minutes."""
    run = publish_run(tmp_path / "wide", shape=GPTConfig(n_layer=1, n_head=2, n_embd=128, block_size=8))
    code = f"""
import os, torch
from chargpt.commands import export
torch.set_num_threads(2)
def threads(): return len(os.listdir("/proc/self/task"))
before = threads()
export.main([{str(run)!r}, "--to", {target!r}, {str(tmp_path / "out")!r}])
print("more", threads() - before)
torch.ones(100_000).isfinite()
print("more", threads() - before)
"""
    done = programs.run(code=code, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().split("more ")[1:] == ["0\n", "1\n"]
