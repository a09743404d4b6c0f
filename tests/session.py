"""What a test session sets in each of its processes: a root of its own, and what `auto` means for runtime.precision."""

import shutil
from pathlib import Path

import torch

from chargpt import device, project

PRECISIONS = ("float32", "bfloat16")


def make_root(folder: Path) -> Path:
    """Make `folder` a root with the presets and without runs and texts, so that those of the checkout change no test."""
    shutil.copytree(project.SOURCE / "configs", folder / "configs")
    (folder / "train.py").touch()
    return folder


def set_up(*, root: Path, precision: str | None) -> None:
    """Use `root` in this process, and `precision` where `auto` is set on a CPU; None keeps the processor's own choice."""
    project.SOURCE = root
    if precision is not None:
        device.cpu_precision = lambda: getattr(torch, precision)
