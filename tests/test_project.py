"""Where a checkout and an installed package keep runs and texts, and how they are called."""

from pathlib import Path

import pytest

from chargpt import project
from chargpt.project import command, presets_folder, project_root, user_cache_folder

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("verb, words", [("train", "python train.py"), ("runs", "python -m chargpt runs")])
def test_a_checkout_has_its_own_runs_and_presets_and_an_installed_package_the_folder_it_is_used_in(
    installed, monkeypatch, verb, words
):
    assert project_root() == installed and presets_folder() == project.PRESETS and command(verb) == f"chargpt {verb}"
    monkeypatch.setattr(project, "SOURCE", ROOT)
    assert project_root() == ROOT and presets_folder() == ROOT / "configs" and command(verb) == words


def test_the_cache_folder_follows_the_rules_of_each_system(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(project.sys, "platform", "linux")
    monkeypatch.setattr(project.os, "name", "posix")
    for named, folder in (("", tmp_path / ".cache"), ("relative", tmp_path / ".cache"), ("/own", Path("/own"))):
        monkeypatch.setenv("XDG_CACHE_HOME", named)
        assert user_cache_folder() == folder
    monkeypatch.setattr(project.sys, "platform", "darwin")
    assert user_cache_folder() == tmp_path / "Library" / "Caches"
