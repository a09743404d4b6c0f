"""No function in C is called with sizes that are not those of its model: what does not fit is refused in Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fuzz_shapes import fuzz

from chargpt.kernels.attention import load_kernel
from chargpt.kernels.compiler import STEP_FLOAT32
from chargpt.kernels.step import StepKernel
from chargpt.sampling import c_texts

ROOT = Path(__file__).parents[2]


def test_what_does_not_fit_is_refused_before_c_is_called(compiled):
    step = StepKernel(torch.float32, compiled(lambda cache: load_kernel(STEP_FLOAT32, cache)))
    found = fuzz(40, step=step, decode=compiled(c_texts.load_kernel))
    assert not found.wrong and found.refused > 30 and found.made - found.refused > 20


@pytest.mark.nightly
def test_the_compilers_sanitizer_sees_no_access_beyond_an_array():
    command = ["cc", "-print-file-name=libasan.so"]
    library = subprocess.run(command, capture_output=True, text=True).stdout.strip() if os.name == "posix" else ""
    if not Path(library).is_file():
        pytest.skip("needs a C compiler with -fsanitize=address")
    environment = {**os.environ, "LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0", "PYTHONPATH": f"{ROOT}"}
    script = [sys.executable, str(ROOT / "tests" / "fuzz_shapes.py"), "300", "-fsanitize=address", "-g"]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    made, refused, *wrong = done.stdout.split(maxsplit=2)
    assert not wrong and int(made) - int(refused) > 200
