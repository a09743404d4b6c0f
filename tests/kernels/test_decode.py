"""The models that the kernels support, and the structures of decode.c. Its results are tested in tests/sampling."""

import ctypes
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from chargpt.kernels import attention, step
from chargpt.kernels.compiler import STEP_FLOAT32, declare
from chargpt.model import POSITIONS, GPTConfig
from chargpt.sampling import c_texts

KERNELS = [attention, c_texts, step]


@pytest.mark.parametrize(
    ("changes", "supported"),
    [
        *(({"positions": positions}, KERNELS) for positions in POSITIONS),
        ({"positions": "fake"}, []),
        ({"positions": "rotary", "n_embd": 6}, []),
        ({"n_embd": 7}, []),
        ({"n_embd": 48}, [attention, c_texts]),
        ({"block_size": 2**31}, []),
        ({"n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": 4096, "positions": "rotary"}, KERNELS),
        ({"n_head": 1, "n_embd": 1, "block_size": 2**27, "positions": "sinusoidal"}, []),  # its table would fill the memory
    ],
    ids=str,
)
def test_each_kernel_says_which_models_it_supports(changes, supported):
    """Also of values that GPTConfig refuses."""
    config = SimpleNamespace(**{**asdict(GPTConfig(n_head=2, n_embd=64)), **changes})
    assert [kernel for kernel in KERNELS if kernel.supports(config)] == supported


def test_the_structures_have_the_sizes_that_c_gives_them(compiled):
    step_library = compiled(lambda cache: attention.load_kernel(STEP_FLOAT32, cache))
    for library, name, structure in (
        (compiled(c_texts.load_kernel), "decoder_shape_size", c_texts.Shape),
        (compiled(c_texts.load_kernel), "decoder_share_size", c_texts.Share),
        (compiled(c_texts.load_kernel), "decoder_rules_size", c_texts.Rules),
        (step_library, "attention_size", attention._Attention),
        (step_library, "step_size", step._Step),
        (step_library, "muon_size", step._Muon),
    ):
        declare(library, **{name: (ctypes.c_size_t,)})
        assert getattr(library, name)() == ctypes.sizeof(structure), name
