"""exact.c, which computes frequencies for compression: its structures and its loading.

chargpt/archive/exact_model.py is the engine that uses it. It computes every model.
"""

import ctypes
from ctypes import POINTER, Structure, c_int, c_void_p
from dataclasses import replace
from pathlib import Path

from chargpt.kernels.compiler import EXACT, check_sizes, load

PANEL = 8  # outputs of a matrix that are stored and computed together


class Linear(Structure):
    """A matrix and a bias. See `Linear` in exact.c."""

    _fields_ = [("weight", c_void_p), ("bias", c_void_p)]


class Layer(Structure):
    """The numbers of a block. See `Layer` in exact.c."""

    _fields_ = [
        ("norm_1", c_void_p * 2),
        ("norm_2", c_void_p * 2),
        *((name, Linear) for name in ("qkv", "proj", "up", "down")),
    ]


class Model(Structure):
    """The shape, the numbers of bits and the tables of a model. See `Model` in exact.c."""

    _fields_ = [
        *((name, c_int) for name in ("n_layer", "n_head", "n_embd", "block_size", "symbols")),
        *((name, c_int) for name in ("bits_width", "bits_hidden", "bits_head", "bits_keys", "bits_sum")),
        ("layers", POINTER(Layer)),
        ("norm", c_void_p * 2),
        ("logits", Linear),
        *((name, c_void_p) for name in ("tokens", "positions", "rotary")),
    ]


class Cache(Structure):
    """What one text leaves behind. See `Cache` in exact.c."""

    _fields_ = [("keys", c_void_p), ("values", c_void_p), ("units", c_void_p)]


def load_kernel(cache: Path | None = None, *, instructions: str | None = None, extra: tuple[str, ...] = ()) -> ctypes.CDLL:
    """exact.c, as `load` of compiler.py finds it, compiled with `extra` flags. Raises Unavailable."""
    kernel = load(replace(EXACT, flags=(*EXACT.flags, *extra)), instructions=instructions, cache=cache)
    check_sizes(kernel, exact_linear_size=Linear, exact_layer_size=Layer, exact_model_size=Model, exact_cache_size=Cache)
    kernel.exact_read.argtypes = [POINTER(Model), POINTER(Cache), c_void_p, c_int, c_int, c_int, c_int, c_void_p]
    kernel.exact_read.restype = c_int
    return kernel
