"""The library leaves its process as it was: its threads, its numbers, its signals. Only a program that trains changes them.

This file has no module of its own: it tests the imports, chargpt.load, train.py and training/runtime.py together.
"""

import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import publish_run

import chargpt
import train
from chargpt.config import Config, RuntimeConfig
from chargpt.planning import speeds
from chargpt.planning.speeds import training_speed
from chargpt.training.runtime import choose_runtime
from chargpt.training.trainer import Trainer

ROOT = Path(__file__).parents[1]
IMPORTS = """
import pkgutil, sys
sys.path.insert(0, "tests")
import numpy, torch
from test_process_state import state
torch.set_num_threads(3)
torch.set_float32_matmul_precision("medium")
before = state()
import chargpt
names = [module.name for module in pkgutil.walk_packages(chargpt.__path__, "chargpt.")]
for name in names:
    try:
        __import__(name)
    except ModuleNotFoundError as missing:  # what an export alone needs
        assert missing.name == "gguf"
assert len(names) > 100 and state() == before
"""


def state() -> dict[str, object]:
    """What a library must not change in the process that uses it."""
    return {
        "threads": torch.get_num_threads(),
        "products": torch.get_float32_matmul_precision(),
        "dtype": torch.get_default_dtype(),
        "grad": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "random": (random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()[1].tolist()),
        "signals": [signal.getsignal(number) for number in signal.valid_signals()],
        "memory": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count() // 10_000),  # which a new cache changes a little
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "streams": (sys.stdin, sys.stdout, sys.stderr),
    }


def without_randomness() -> dict[str, object]:
    return {name: value for name, value in state().items() if name != "random"}


@contextlib.contextmanager
def unusual(dtype: torch.dtype = torch.float32) -> Iterator[None]:
    """A process whose user has chosen other values than any of this program."""
    threads, products = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(3)
    torch.set_float32_matmul_precision("medium")
    torch.set_default_dtype(dtype)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(products)
        torch.set_default_dtype(torch.float32)


@pytest.mark.nightly  # it imports everything anew
def test_importing_the_library_changes_nothing():
    done = subprocess.run([sys.executable, "-c", IMPORTS], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_run_that_is_loaded_and_used_changes_nothing(tmp_path, dtype):
    run = publish_run(tmp_path / "run")
    with unusual(dtype):
        before = state()
        model = chargpt.load(run, device="cpu")
        assert state() == before
        model.generate("ab", length=20, seed=1)
        assert model.score("abc abc") > 0 and len(model.logits("abc")) == 3 and model.attention("abc").shape == (1, 2, 3, 3)
        assert state() == before and {parameter.dtype for parameter in model.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("words", [["--config", "tiny", "model.dropout=0.1"], ["--minutes", "0.1"]])
def test_a_plan_that_times_steps_changes_nothing_but_the_random_numbers(text, tmp_path, words, capfd, monkeypatch):
    monkeypatch.setattr(speeds, "training_speed", training_speed)
    place = ["--dry-run", "--run", f"{tmp_path}/run", f"data.cache={tmp_path}/cache", "runtime.threads=1"]
    with unusual():
        before = without_randomness()
        assert train.main([str(text), *words, *place]) == 0
        assert without_randomness() == before and "estimate" in capfd.readouterr().out


def test_a_runtime_is_applied_until_its_block_ends_or_fails():
    with unusual(torch.float64):
        runtime, before = choose_runtime(Config(runtime=RuntimeConfig(device="cpu", threads=2))), state()
        with pytest.raises(KeyError), runtime.applied():
            assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (runtime.threads, "high") == (2, "high")
            assert torch.get_default_dtype() == torch.float32 and torch.is_grad_enabled()
            raise KeyError
        assert state() == before


def test_a_run_trains_in_its_own_runtime_and_changes_nothing_but_the_random_numbers(text, tmp_path, monkeypatch, capfd):
    words = ["--config", "tiny", "train.max_steps=2", "train.sample_length=0", "runtime.threads=2"]
    seen, advance = [], Trainer.advance
    monkeypatch.setattr(Trainer, "advance", lambda trainer: seen.append(torch.get_num_threads()) or advance(trainer))
    with unusual():
        before = without_randomness()
        assert train.main([str(text), *words, "--run", f"{tmp_path}/run", f"data.cache={tmp_path}/cache"]) == 0
        assert without_randomness() == before and set(seen) == {2}
