"""`python -m chargpt export`: the run is found, the format's writer is called, and its result is published."""

import json
from pathlib import Path

import pytest
from exchange_helpers import publish_model
from helpers import publish_run

from chargpt.commands import export
from chargpt.errors import UserError
from chargpt.model import GPTConfig
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


@pytest.fixture
def kernel(monkeypatch):
    """A stand-in of the compiled kernel: which one it is does not matter here."""
    monkeypatch.setattr("chargpt.exchange.learning.load_web", lambda: {"simd": b"simd", "relaxed": b"relaxed"})


def test_a_page_learns_unless_it_is_to_write_only(run, kernel, tmp_path):
    export.main(["my run", "--to", "html"])
    export.main(["my run", "--to", "html", "writes.html", "--write-only"])
    learns, writes = ((tmp_path / name).read_text(encoding="utf-8") for name in ("my-run.html", "writes.html"))
    assert '<script type="application/json" id="learning">' in learns and "class Lesson" in learns
    assert 'id="learning"' not in writes and "class Lesson" not in writes and len(writes) < len(learns) - 30_000


def test_a_blank_page_and_that_of_a_start_need_no_run(installed, kernel, tmp_path):
    export.main(["--to", "html", "--blank"])
    export.main(["--to", "html", "--blank", "class.html"])
    assert (tmp_path / "learn.html").read_bytes() == (tmp_path / "class.html").read_bytes()
    assert '<script type="application/json" id="about">null</script>' in (tmp_path / "learn.html").read_text(encoding="utf-8")
    export.main(["spanish", "--to", "html"])
    assert '"run":"spanish"' in (tmp_path / "spanish.html").read_text(encoding="utf-8")


def test_a_run_is_meant_before_a_start_of_its_name(installed, kernel, tmp_path):
    publish_model(tmp_path / "checkpoints" / "english", tokenizer=Tokenizer("\n xyz"))
    export.main(["english", "--to", "html"])
    assert '"characters":"\\n xyz"' in (tmp_path / "english.html").read_text(encoding="utf-8")


def test_without_a_compiler_a_page_writes_and_one_line_says_what_learning_needs(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("chargpt.kernels.compiler.compilers", lambda target=None: [])
    monkeypatch.setattr("chargpt.kernels.compiler.PACKAGED", tmp_path / "absent")
    export.main(["my run", "--to", "html"])
    assert [line for line in capsys.readouterr().out.splitlines() if "pip install ziglang" in line][0].startswith("note")
    assert 'id="learning"' not in (tmp_path / "my-run.html").read_text(encoding="utf-8")
    with pytest.raises(UserError, match="pip install ziglang"):
        export.main(["--to", "html", "--blank"])


MISTAKES = {
    "--to hf --blank": "--blank: works only with --to html",
    "my-run --to hf --write-only": "--write-only: works only with --to html",
    "--to html": "RUN: missing",
    "--to html --blank --write-only": "must learn",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_options_that_do_not_go_together_are_told(installed, words):
    with pytest.raises(UserError, match=MISTAKES[words]):
        export.main(words.split())
