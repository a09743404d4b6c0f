"""What a test session sets in each of its processes: a root of its own, and what `auto` means for some settings."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from chargpt import project

if TYPE_CHECKING:
    from chargpt.text.cache import EncodedText
    from chargpt.text.facts import TextFacts

PRECISIONS = ("float32", "bfloat16")
STEPS = ("torch",)
NOTHING = [shutil.which("true")] if shutil.which("true") else [sys.executable, "-S", "-c", ""]  # Python takes 15 ms


def no_report(*_: object, **__: object) -> subprocess.Popen:
    """What writes the report of a run, unless a test asks for one."""
    return subprocess.Popen(NOTHING, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def once_for_each_text(measure: Callable[["EncodedText"], "TextFacts"]) -> Callable[["EncodedText"], "TextFacts"]:
    """`measure` for texts of which many tests encode the same one, each into a cache of its own."""
    known: dict[str, TextFacts] = {}

    def facts_of(text: "EncodedText") -> "TextFacts":
        parts = (text.train, text.val, text.counts, np.frombuffer(repr((text.tokenizer, text.marks)).encode(), np.uint8))
        key = " ".join(hashlib.sha256(part.tobytes()).hexdigest() for part in parts)
        if key not in known:
            known[key] = measure(text)
        return known[key]

    return facts_of


def make_root(folder: Path) -> Path:
    """Make `folder` a root with the presets and without runs and texts, so that those of the checkout change no test."""
    shutil.copytree(project.SOURCE / "configs", folder / "configs")
    (folder / "train.py").touch()
    return folder


def set_up(*, root: Path, precision: str | None, step: str | None) -> None:
    """Use `root` in this process, and `precision` and `step` where `auto` is set on a CPU; None keeps what is fast here.

    Nothing waits for the disk, which would take longer than a tiny training. Tests of a power cut have a disk of their own.
    """
    import torch  # not in the process that shares out the tests

    from chargpt import device
    from chargpt.planning import adaptation, speeds, trial
    from chargpt.sampling import surprisal
    from chargpt.session import follower
    from chargpt.text import facts
    from chargpt.training import distillation, runtime

    os.fsync = lambda file: None
    torch.backends.mps.is_available = lambda: False  # a GPU of Apple cannot be hidden by a variable, as in conftest.py
    project.SOURCE = root
    speeds.speeds_file = lambda: Path(os.devnull, "speeds.json")  # no test writes or uses what this machine can do,
    speeds.training_speed = lambda config, corpus, teachers=(): 1e5  # nor measures it: no plan depends on what else runs
    facts.measure = once_for_each_text(facts.measure)
    adaptation.loss_on.__kwdefaults__["characters"] = 1000  # of 8,000, on which a start takes a second
    follower.start = no_report
    trial.start_names = lambda: []  # a run begins with nothing, unless a test asks for a start
    if precision is not None:
        device.cpu_precision = lambda: getattr(torch, precision)
    if step is not None:
        for module in (runtime, distillation, surprisal):
            module.is_faster = lambda config, threads=0: False
