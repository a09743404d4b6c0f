"""Where a checkout and an installed package keep runs and texts, and how they are called."""

import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import chargpt
from chargpt import project
from chargpt.parser import Parser
from chargpt.project import HOME, TYPED_HOME, command, presets_folder, project_root, user_cache_folder, version

ROOT = Path(__file__).parent.parent


COMMANDS = [
    ("train", "python train.py", f"python {ROOT}/train.py"),
    ("runs", "python -m chargpt runs", f"python {ROOT}/chargpt runs"),
]


@pytest.mark.parametrize("verb, words, elsewhere", COMMANDS)
def test_a_checkout_has_its_own_runs_and_presets_and_an_installed_package_the_folder_it_is_used_in(
    installed, monkeypatch, verb, words, elsewhere
):
    assert project_root() == installed and presets_folder() == project.PRESETS and command(verb) == f"chargpt {verb}"
    monkeypatch.setattr(project, "SOURCE", ROOT)
    monkeypatch.chdir(ROOT / "docs")
    assert command(verb) == elsewhere
    monkeypatch.chdir(ROOT)
    assert project_root() == ROOT and presets_folder() == ROOT / "configs" and command(verb) == words


def test_the_version_has_one_place(tmp_path, monkeypatch):
    in_pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert version() == in_pyproject and "__version__" in dir(chargpt)
    monkeypatch.setattr(project, "PACKAGE", tmp_path / "absent")
    monkeypatch.setattr(importlib.metadata, "version", {"chargpt": "7.8.9"}.__getitem__)
    assert version() == chargpt.__version__ == "7.8.9"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        chargpt.nothing  # noqa: B018


def test_a_verb_is_called_by_the_path_of_the_package_from_another_folder(tmp_path):
    done = subprocess.run([sys.executable, ROOT / "chargpt", "list"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "error: list: no such command; did you mean runs?\n")


HERE = """
import sample, train
from chargpt.kernels import compiler
from chargpt.session import follower
from session import no_report
follower.start, compiler.ZIGLANG = no_report, "no_such_package"  # nothing is compiled, which takes seconds
assert train.main([TEXT, "--config", "tiny", "train.max_steps=4", "--run", "sea"]) == 0
assert sample.main(["sea", "--length", "20"]) == 0
print(compiler.user_cache_folder())
"""


def test_one_folder_holds_everything_that_is_written(programs, text, tmp_path):
    """In a checkout too, from any folder, and relative to that one: runs, texts, speeds, compiled code."""
    before = {path for path in ROOT.rglob("*") if "__pycache__" not in path.parts and ".git" not in path.parts}
    environment = {"CHARGPT_HOME": "mine", "XDG_CACHE_HOME": str(tmp_path / "unused"), "PATH": str(tmp_path)}
    done = programs.run(code=f"TEXT = {str(text)!r}\n{HERE}", anew=True, folder=tmp_path, environment=environment)
    assert done.returncode == 0, done.stderr.decode()
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {"checkpoints", "data", "cache"}
    assert done.stdout.splitlines()[-1].decode() == str(tmp_path / "mine" / "cache")
    assert (tmp_path / "mine" / "checkpoints" / "sea").is_dir() and not (tmp_path / "unused").exists()
    after = {path for path in ROOT.rglob("*") if "__pycache__" not in path.parts and ".git" not in path.parts}
    assert after == before


def test_the_cache_folder_follows_the_rules_of_each_system(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(project.sys, "platform", "linux")
    monkeypatch.setattr(project.os, "name", "posix")
    for named, folder in (("", tmp_path / ".cache"), ("relative", tmp_path / ".cache"), ("/own", Path("/own"))):
        monkeypatch.setenv("XDG_CACHE_HOME", named)
        assert user_cache_folder() == folder
    monkeypatch.setattr(project.sys, "platform", "darwin")
    assert user_cache_folder() == tmp_path / "Library" / "Caches"


def test_every_command_takes_one_folder_for_all_that_it_writes(tmp_path, monkeypatch):
    for variable in (HOME, TYPED_HOME):
        monkeypatch.setenv(variable, "")
    monkeypatch.chdir(tmp_path)
    Parser().parse_args(["--home", "all"])
    assert project_root() == tmp_path / "all" and user_cache_folder() == tmp_path / "all" / "cache"
