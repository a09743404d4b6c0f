"""The version has one place, pyproject.toml, in a checkout and after an installation."""

import importlib.metadata
import tomllib
from pathlib import Path

import pytest

import chargpt
from chargpt import version

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def test_a_checkout_has_the_version_of_its_pyproject():
    assert chargpt.__version__ == VERSION and "__version__" in dir(chargpt)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        chargpt.nothing  # noqa: B018


@pytest.mark.parametrize("project", [None, "not TOML", '[project]\nname = "other"\nversion = "9"', "[tool]"])
def test_an_installed_library_has_the_version_of_its_package(tmp_path, monkeypatch, project):
    if project is not None:
        (tmp_path / "pyproject.toml").write_text(project)
    monkeypatch.setattr(version, "PROJECT", tmp_path / "pyproject.toml")
    monkeypatch.setattr(importlib.metadata, "version", {"chargpt": "7.8.9"}.__getitem__)
    assert version.version() == chargpt.__version__ == "7.8.9"
