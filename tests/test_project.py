"""Where a checkout and an installed library keep texts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from chargpt import project
from chargpt.project import data_folder, user_cache_folder

ROOT = Path(__file__).parent.parent
WHERE = """
from pathlib import Path
from chargpt.config import DataConfig
from chargpt.text.corpus import cache_folders
print(*cache_folders(DataConfig(), root=Path("here")))
"""


def test_a_checkout_keeps_its_texts_in_its_data_folder(tmp_path):
    assert data_folder(tmp_path) == tmp_path / "data"


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the rules of Linux")
def test_an_installed_library_keeps_them_in_the_users_cache_folder(tmp_path):
    shutil.copytree(ROOT / "chargpt", tmp_path / "packages" / "chargpt", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "model.py", tmp_path / "packages")
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "packages"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-c", WHERE]
    result = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=True, text=True)
    assert result.stdout.split() == [str(tmp_path / "cache" / "chargpt" / "cache"), str(Path("here/data/cache"))]


def test_the_cache_folder_follows_the_rules_of_each_system(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(project.sys, "platform", "linux")
    monkeypatch.setattr(project.os, "name", "posix")
    for named, folder in (("", tmp_path / ".cache"), ("relative", tmp_path / ".cache"), ("/own", Path("/own"))):
        monkeypatch.setenv("XDG_CACHE_HOME", named)
        assert user_cache_folder() == folder
    monkeypatch.setattr(project.sys, "platform", "darwin")
    assert user_cache_folder() == tmp_path / "Library" / "Caches"
