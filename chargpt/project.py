"""Where the folders checkpoints/, configs/ and data/ are."""

from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]  # the folder of the package chargpt


def project_root() -> Path:
    """The folder of checkpoints/, configs/ and data/: the repository in a checkout, the current folder when installed."""
    return SOURCE if (SOURCE / "train.py").is_file() else Path.cwd()
