"""The version of the library. pyproject.toml is the one place that has it."""

import importlib.metadata
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"  # in a checkout


def version() -> str:
    """The version of this checkout, or of the installed package."""
    try:
        project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
        if project["name"] == "chargpt":
            return project["version"]
    except (OSError, ValueError, KeyError):  # installed: there is no such file, or it is not ours
        pass
    return importlib.metadata.version("chargpt")
