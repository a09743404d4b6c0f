"""What a page needs to learn: the numbers by which the program trains, and its kernel as WebAssembly."""

import base64
import gzip
import math
from types import ModuleType
from typing import Any

from chargpt.config import Config
from chargpt.kernels.compiler import Unavailable as Unavailable  # what `needed` raises
from chargpt.kernels.compiler import load_web
from chargpt.model import EMBEDDING_STD, INITIAL_STD
from chargpt.planning import adaptation, chosen_for_time, law, speeds
from chargpt.text.tokenizer import LOOK_ALIKES
from chargpt.training.initialisation import RANDOM_SHARE, SCORE_DIFFERENCE
from chargpt.training.optimizers import NEWTON_SCHULZ, OPTIMIZERS, WITH_MINUTES

LARGEST = 1e308  # stands for infinity, which JSON does not have


def numbers() -> dict[str, Any]:
    """The numbers of the program that learn.js computes with, as JSON types: they have one owner."""
    config, kind = Config(), OPTIMIZERS[WITH_MINUTES]
    found = {
        "law": _constants(law) | _constants(chosen_for_time) | _constants(speeds),
        "start": _constants(adaptation),
        "optimizer": {"name": WITH_MINUTES, **{name: value for name, value in vars(kind).items() if name != "make"}},
        "initial": {"EMBEDDING_STD": EMBEDDING_STD, "INITIAL_STD": INITIAL_STD, "RANDOM_SHARE": RANDOM_SHARE}
        | {"SCORE_DIFFERENCE": SCORE_DIFFERENCE[str(kind.model["positions"])]},
        "optim": vars(config.optim),
        "train": vars(config.train),
        "val_fraction": config.data.val_fraction,
        "NEWTON_SCHULZ": NEWTON_SCHULZ,
        "LOOK_ALIKES": LOOK_ALIKES,
    }
    return {name: _plain(value) for name, value in found.items()}


def needed() -> dict[str, Any]:
    """What a page needs: the numbers, and the kernel for each set of instructions, in gzip and base64. Raises Unavailable."""
    code = {name: base64.b64encode(gzip.compress(code, mtime=0)).decode() for name, code in load_web().items()}
    return {"numbers": numbers(), "code": code}


def _constants(module: ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if name.isupper() and isinstance(value, (int, float, tuple))}


def _plain(value: Any) -> Any:
    """`value` with lists in place of tuples, and LARGEST in place of infinity."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return LARGEST if value == math.inf else value
