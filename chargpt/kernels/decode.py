"""decode.c, which reads and samples characters on the CPU: its structures, its loading, and the models it supports.

chargpt/sampling/c_texts.py calls it.
"""

import ctypes
from ctypes import POINTER, Structure, c_double, c_float, c_int, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING

from chargpt.config import ModelConfig
from chargpt.kernels import positions
from chargpt.kernels.compiler import DECODE, declare, load

if TYPE_CHECKING:  # writing with this kernel needs no torch
    from chargpt.model import GPTConfig

MAX_POSITIONS = 2**24  # numbers in a table of fixed positions, which decode.c needs in full; PyTorch makes it as it is used


class Shape(Structure):
    """The model's shape and tables, and the number of texts and threads. See `Shape` in decode.c."""

    _fields_ = [
        *((name, c_int) for name in ("n_layer", "n_head", "n_embd", "block_size", "vocab_size", "texts", "ranks", "precision")),
        *((name, c_void_p) for name in ("tokens", "positions", "rotary", "logits")),
    ]


class Share(Structure):
    """A thread's part of the model. See `Share` in decode.c."""

    _fields_ = [*((name, c_int) for name in ("heads", "hidden", "first_id", "ids")), ("weights", c_void_p)]


class Rules(Structure):
    """The sampling rules, by the names of their options, and what they need. See `Rules` in decode.c."""

    _fields_ = [
        ("repetition_penalty", c_double),
        *((name, c_float) for name in ("temperature", "top_p", "min_p")),
        *((name, c_int) for name in ("top_k", "known", "window")),
        *((name, c_void_p) for name in ("forbidden", "history")),
    ]


KNOWN_RULES = {each[0] for each in Rules._fields_}


def supports(config: "ModelConfig | GPTConfig") -> bool:
    """Whether decode.c computes this model. Other models are for the decoder in PyTorch."""
    if config.positions != "learned" and config.block_size * config.n_embd > MAX_POSITIONS:
        return False
    return positions.supports(config) and max(config.n_layer, 4 * config.n_embd, config.block_size) < 2**31


def load_kernel(cache: Path | None = None) -> ctypes.CDLL:
    """decode.c, as `load` of compiler.py finds it. Raises Unavailable."""
    kernel = load(DECODE, cache=cache)
    given = (c_void_p, POINTER(Rules), c_int, c_int, c_void_p, c_int, c_void_p, c_void_p, c_void_p)
    new = (c_void_p, POINTER(Shape), POINTER(Share))
    declare(kernel, decoder_new=new, decoder_free=(None, c_void_p), decoder_run=(c_int, *given))
    return kernel
