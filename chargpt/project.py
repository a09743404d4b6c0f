"""Where the folders checkpoints/, configs/ and data/ are, and where texts are kept."""

import os
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]  # the folder of the package chargpt


def project_root() -> Path:
    """The folder of checkpoints/, configs/ and data/: the repository in a checkout, the current folder when installed."""
    return SOURCE if (SOURCE / "train.py").is_file() else Path.cwd()


def data_folder(root: Path) -> Path:
    """Where downloaded and encoded texts are kept: in a checkout, `root`/data; otherwise the user's folder for caches."""
    if (SOURCE / "train.py").is_file():
        return root / "data"
    try:
        return user_cache_folder() / "chargpt"
    except RuntimeError:  # the user has no home folder
        return root / "data"


def user_cache_folder() -> Path:
    """Where programs of this user keep what they can make again, by the rules of the system. Raises RuntimeError."""
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return named if named.is_absolute() else Path.home() / ".cache"  # XDG: a relative path is ignored
