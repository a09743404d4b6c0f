"""The structures and the loading of exact.c. Its results are tested in insight/test_exact_engine.py."""

import ctypes

import pytest

from chargpt.kernels.compiler import EXACT, check_sizes
from chargpt.kernels.exact import Layer, load_kernel


@pytest.fixture(scope="module")
def kernel(compiled):
    return compiled(load_kernel)


def test_a_structure_that_differs_from_the_c_source_is_noticed(kernel):
    class Shorter(ctypes.Structure):
        _fields_ = Layer._fields_[:-1]

    with pytest.raises(AssertionError):
        check_sizes(kernel, exact_layer_size=Shorter)


def test_no_flag_changes_a_result():
    assert "-ffp-contract=off" in EXACT.flags and not any("fast" in flag or "math" in flag for flag in EXACT.flags)
