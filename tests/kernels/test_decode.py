"""The structures, the loading and the supported models of decode.c. Its results are tested in sampling/test_c_engine.py."""

import ctypes
from dataclasses import fields
from types import SimpleNamespace

import pytest

from chargpt.kernels.compiler import check_sizes
from chargpt.kernels.decode import Rules, Shape, Share, load_kernel, supports
from chargpt.model import POSITIONS, GPTConfig


@pytest.fixture(scope="module")
def kernel(compiled):
    return compiled(load_kernel)


def config_like(**changes) -> SimpleNamespace:
    """The fields of a GPTConfig, also with values that GPTConfig refuses."""
    config = GPTConfig(n_head=2, n_embd=8)
    return SimpleNamespace(**{field.name: getattr(config, field.name) for field in fields(config)} | changes)


def test_every_kind_of_position_that_the_model_has_is_supported():
    assert all(supports(GPTConfig(n_head=2, n_embd=8, positions=positions)) for positions in POSITIONS)


@pytest.mark.parametrize(
    "changes", [{"positions": "fake"}, {"positions": "rotary", "n_embd": 6}, {"n_embd": 7}, {"block_size": 2**31}]
)
def test_an_unknown_position_or_shape_is_not_supported(changes):
    assert not supports(config_like(**changes))


def test_a_table_of_positions_that_would_fill_the_memory_is_not_supported():
    assert supports(GPTConfig(n_layer=12, n_head=12, n_embd=768, block_size=4096, positions="rotary"))
    assert not supports(GPTConfig(n_layer=1, n_head=1, n_embd=1, block_size=2**27, positions="sinusoidal"))


def test_the_structures_have_the_sizes_that_c_gives_them(kernel):
    class Longer(ctypes.Structure):
        _fields_ = [*Share._fields_, ("more", ctypes.c_void_p)]

    check_sizes(kernel, decoder_shape_size=Shape, decoder_share_size=Share, decoder_rules_size=Rules)
    with pytest.raises(AssertionError, match="decoder_share_size"):
        check_sizes(kernel, decoder_share_size=Longer)
