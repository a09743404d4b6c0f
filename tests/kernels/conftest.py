"""The library of training for each dtype, compiled for this CPU's instructions, and for others that it can run or emulate."""

from ctypes import CDLL
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from chargpt.kernels.attention import load_kernel
from chargpt.kernels.compiler import STEP_BFLOAT16, STEP_FLOAT32, Source, Unavailable, available_instructions, compilers


def baseline(source: Source, *flags: str) -> Source:
    return replace(source, flags=(*source.flags, "-Wno-psabi", *flags), instructions=("baseline",))


EMULATED = baseline(STEP_BFLOAT16, "-O2", "-I", str(Path(__file__).parent / "emulation"))
KERNELS = {
    "float32": STEP_FLOAT32,
    "bfloat16": STEP_BFLOAT16,  # emulated on a processor without its instructions
    "float32, baseline": baseline(STEP_FLOAT32),
    "float32, avx2": replace(STEP_FLOAT32, instructions=("avx2",)),
    "float32, 16 lanes": baseline(STEP_FLOAT32, "-D__AVX512F__=1"),  # takes long to compile
    "bfloat16, emulated": EMULATED,
}


@pytest.fixture(scope="module", params=[pytest.param(k, marks=[pytest.mark.nightly] * ("," in k)) for k in KERNELS])
def library(request, kernel_cache) -> tuple[torch.dtype, CDLL]:
    source, dtype = KERNELS[request.param], getattr(torch, request.param.partition(",")[0])
    try:
        if source is STEP_BFLOAT16 and not set(source.instructions) & set(available_instructions(kernel_cache)):
            source = EMULATED
        return dtype, load_kernel(source, kernel_cache)
    except Unavailable as reason:
        assert not compilers() or not set(source.instructions) & set(available_instructions(kernel_cache)), reason
        pytest.skip(f"needs a C compiler, or a processor with other instructions: {reason}")
