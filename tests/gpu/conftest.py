"""Where the tests of this folder run: on a CUDA GPU, or else on the null GPU, and if there is neither, not at all."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from gpu import null_gpu

ROOT, PROGRAMS = Path(__file__).parents[2], Path(__file__).with_name("programs.py")


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """The driver of the null GPU; None if there is a real one."""
    if torch.cuda.is_available():
        return None
    if reason := null_gpu.why_not():
        pytest.skip(reason)
    return null_gpu.build(tmp_path_factory.mktemp("null") / "driver")


@pytest.fixture(scope="session")
def run(driver: Path | None) -> Callable[..., str]:
    """What a program says on the GPU, which ends well unless it `fails`. `variables` are for the null GPU."""

    def said(*words: str, fails: bool = False, **variables: str) -> str:
        environment = null_gpu.environment(driver, **variables) if driver else dict(os.environ)
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)
        assert done.returncode != 0 if fails else done.returncode == 0, done.stderr[-4000:]
        return done.stderr + done.stdout

    return said


@pytest.fixture(scope="session")
def null_run(driver: Path | None, run: Callable[..., str]) -> Callable[..., str]:
    """`run`, for what only the null GPU can do: count what is asked of it, and be old, small or two."""
    if driver is None:
        pytest.skip("there is a real GPU, which counts nothing")
    return run


@pytest.fixture(scope="session")
def returned(null_run: Callable[..., str]) -> Callable[[str], object]:
    """What a function of programs.py returns."""
    return lambda function: json.loads(null_run(str(PROGRAMS), function).splitlines()[-1])
