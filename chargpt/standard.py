"""The model that everything beside model.py computes, and whether model.py computes it too.

model.py is the model, and anybody may change it. The C code, the exports and the exported page compute one fixed model, GPT-2's
with exact GELU, which is written here once more: the names and shapes of its weights, its positions, its logits. Whoever wants
to compute in place of model.py asks `is_standard` first. It compares the two by their numbers, so it needs no list of what may
have been changed. Only of the very file that comes with chargpt is the answer known: sampling then needs no torch.
"""

import functools
import hashlib
import math
import re
import runpy
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from chargpt.config import ModelConfig
from chargpt.project import model_file
from chargpt.standard_model import Parts, has_positions

if TYPE_CHECKING:  # writing needs no torch
    from chargpt.model import GPTConfig

# `model_source` of the model.py that comes with chargpt. A test compares it, and says what to write here after a change.
UNCHANGED = "ab310f4b43bbdafcb7bc810bb51d0fd4deee2fbe4e739800347f4ef57a2a1059"
PROBED = 32  # characters on which `model_loss` looks at a model
IMPORT = re.compile(rb"^[ \t]*(?:import|from)\b(.*)", re.MULTILINE)
CHANGED = "model.py computes something else than the C code"


def is_standard(config: "ModelConfig | GPTConfig", *, dropout: float = 0.0) -> bool:
    """Whether model.py, as it is now, computes the standard model in shapes like this one: weights, logits, loss, and gradient
    with so much `dropout`. Of the model.py that comes along it is known without torch; of another one, a comparison takes 0.1
    s."""
    return has_positions(config) and _holds("differences_of_model", config, dropout=dropout)


def has_standard_attention(config: "ModelConfig | GPTConfig") -> bool:
    """Whether other code may compute the attention of model.py, its `fused`. All else of it may be changed."""
    return has_positions(config) and _holds("differences_of_attention", config, dropout=config.dropout)


def has_exact_cache(config: "ModelConfig | GPTConfig") -> bool:
    """Whether model.py reads a text with a cache as it does without. If not, or if it has none, texts are written without."""
    return _holds("differences_of_cache", config, dropout=0.0)


def _holds(comparison: str, config: "ModelConfig | GPTConfig", *, dropout: float) -> bool:
    """Whether this `comparison` of changed_model.py finds small differences; of the model.py that comes along, it does."""
    if "chargpt.model" not in sys.modules and model_source() == UNCHANGED:
        return True
    from chargpt.model import GPT

    parts = _parts_of(vars(sys.modules[GPT.__module__]))  # in a checkout, chargpt.model has copies of their names alone
    if _is_unchanged(parts):
        return True
    from chargpt import changed_model

    shapes = changed_model.shapes_like(config, dropout)
    return all(changed_model.are_small(getattr(changed_model, comparison), shape, parts) for shape in shapes)


def _parts_of(module: Mapping[str, Any]) -> Parts:
    parts = {name: value for name, value in module.items() if not name.startswith("__")}
    for name, kind in [(n, one) for n, one in parts.items() if isinstance(one, type) and one.__module__ == module["__name__"]]:
        parts |= {f"{name}.{key}": part for key, part in vars(kind).items() if callable(part) or not key.startswith("__")}
    return Parts({name: dict(part) if isinstance(part, dict) else part for name, part in parts.items()})  # tables may change


@functools.lru_cache(maxsize=8)
def _is_unchanged(parts: Parts) -> bool:
    """Whether a loaded module is the model.py that comes with chargpt: the file is, and what it has is what it had at first."""
    if model_source() != UNCHANGED or _source_now() != UNCHANGED:
        return False
    first = _parts_of(runpy.run_path(str(model_file()), run_name="unchanged_model"))  # whatever Python had compiled before
    return parts.keys() == first.keys() and all(_plain(parts[name]) == _plain(first[name]) for name in parts)


def _plain(part: Any) -> object:
    """A part of a module, so that it is equal to the same part of another module."""
    if isinstance(part, dict):
        return {name: _plain(value) for name, value in part.items()}
    return getattr(part, "__code__", part.__qualname__ if isinstance(part, type) else part)


def model_loss(
    logits_of: Callable[[list[int]], np.ndarray], config: "ModelConfig | GPTConfig", vocab_size: int
) -> float | None:
    """The mean loss in nats on ids that stand for nothing, by `logits_of` T ids, (T, V); None if it is not finite."""
    size = min(config.block_size, PROBED)
    ids = [(7919 * i * i + 104729 * i) % vocab_size for i in range(size + 1)]
    logits = logits_of(ids[:-1]).astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(size), ids[1:]]
    return float(losses.mean()) if math.isfinite(losses.sum()) else None


def model_source() -> str:
    """The SHA-256 of model.py, and of those files beside it that it imports: as they were when this process loaded it."""
    return _source_in_use() if "chargpt.model" in sys.modules else _source_now()


def is_outdated(source: str) -> bool:
    """Whether model.py is the one of this `model_source`, but not what this process has loaded."""
    return source == _source_now() != model_source()


def _source_now() -> str:
    files, found = [model_file()], list[bytes]()
    for file in files:  # it grows meanwhile
        if file.is_file():
            found.append(file.read_bytes().replace(b"\r\n", b"\n"))
            names = {name.decode() for line in IMPORT.findall(found[-1]) for name in re.findall(rb"\w+", line)}
            places = [file.with_name(name) for name in sorted(names)]  # of a module or a package
            beside = [path for place in places for path in (place.with_suffix(".py"), *sorted(place.rglob("*.py")))]
            files += [path for path in dict.fromkeys(beside) if path not in files]
    return hashlib.sha256(b"\0".join(found)).hexdigest()


_source_in_use = functools.cache(_source_now)
