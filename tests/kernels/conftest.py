"""The library of training for each dtype, compiled for this CPU's instructions, and for others that it can run or emulate."""

from ctypes import CDLL
from pathlib import Path

import pytest
import torch

from chargpt.kernels.attention import load_kernel
from chargpt.kernels.compiler import Unavailable, available_instructions

EMULATION = Path(__file__).parent / "emulation"
KERNELS = {  # the instructions that it is compiled for, None for the best of this processor, and other flags
    "float32": (torch.float32, None, ()),
    "float32, baseline": (torch.float32, "baseline", ()),
    "float32, avx2": (torch.float32, "avx2", ()),
    "float32, 16 lanes": (torch.float32, "baseline", ("-Wno-psabi", "-D__AVX512F__=1")),
    "bfloat16": (torch.bfloat16, None, ()),
    "bfloat16, emulated": (torch.bfloat16, "baseline", ("-O2", "-Wno-psabi", "-I", str(EMULATION))),
}
NIGHTLY = ("float32, baseline", "float32, avx2", "float32, 16 lanes")  # the last one takes long to compile


@pytest.fixture(scope="module", params=[pytest.param(k, marks=pytest.mark.nightly) if k in NIGHTLY else k for k in KERNELS])
def library(request, kernel_cache) -> tuple[torch.dtype, CDLL]:
    dtype, instructions, extra = KERNELS[request.param]
    if instructions and instructions not in available_instructions(kernel_cache):
        pytest.skip(f"needs a processor with {instructions}")
    try:
        return dtype, load_kernel(dtype, kernel_cache, instructions=instructions, extra=extra)
    except Unavailable as reason:
        assert "error:" not in str(reason)
        pytest.skip(f"needs a C compiler, or a CPU that multiplies bfloat16 numbers: {reason}")
