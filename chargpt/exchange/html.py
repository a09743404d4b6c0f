"""`--to html`: one HTML file that opens from a disk, offline, in any browser, writes text with the model inside, and learns.

web/ has the sources: page.html, engine.js (the model, which runs in a worker), interface.js, and tokenizer.js and shapes.js for
both. A page that learns has reading.js, law.js, learn.js and lesson.js (in another worker) and teach.js, too. This module packs
the weights and assembles the page. What a run gives is in it as JSON or base64.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from chargpt.errors import UserError
from chargpt.exchange.export import ExportOptions
from chargpt.files import write_pieces_synced
from chargpt.markup import allowed, as_json
from chargpt.model import GPT
from chargpt.sampling import c_texts
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.text.item_stream import end_in

TEMPLATE = Path(__file__).with_name("web") / "page.html"
SHARED = ("tokenizer.js", "shapes.js")
# What the comments of the template stand for: scripts, and those that only a page that learns has; the policy and the model.
SCRIPTS = {
    "/* the engine goes here */\n": (SHARED + ("engine.js",), ("reading.js", "law.js", "learn.js", "lesson.js")),
    "/* the interface goes here */\n": (SHARED + ("interface.js",), ("teach.js",)),
}
POLICY_HERE = "<!-- the content security policy goes here -->"
MODEL_HERE = "<!-- the model goes here -->"
MAX_NUMBERS = 2**29  # weights, keys and values of a page: 2 GiB in the browser
MAX_LABELS = 500  # in the menu of a page: the most frequent


def write(loaded: LoadedModel | None, path: Path, options: ExportOptions) -> None:
    """Write the page to `path`; without a model, one that has learned nothing. It learns if `options.learning` is given.

    Raises UserError, see `chargpt/exchange/export.py`.
    """
    if loaded is None:
        write_pieces_synced(path, _pieces({}, None, options))
        return
    config, tensors = loaded.model.config, tensors_of(loaded.model)
    cached = 4 * config.n_layer * config.block_size * config.n_embd  # keys and values, twice
    needed = sum(tensor.numel() for tensor in tensors.values()) + cached
    if needed > MAX_NUMBERS:
        raise UserError(f"model: too large for a web page, with {needed:,} numbers (at most {MAX_NUMBERS:,}); use --to gguf")
    write_pieces_synced(path, _pieces(tensors, describe(loaded, options), options))


def _pieces(tensors: Mapping[str, Tensor], about: dict[str, Any] | None, options: ExportOptions) -> Iterator[bytes]:
    """The page, a tensor at a time."""
    source = page_source(learns=options.learning is not None)
    head, model_to_end = source.replace(POLICY_HERE, _policy(source)).split(MODEL_HERE)
    yield head.encode()
    yield f'<script type="application/json" id="about">{as_json(about)}</script>\n'.encode()
    if options.learning is not None:
        yield f'<script type="application/json" id="learning">{as_json(options.learning)}</script>\n'.encode()
    for name, tensor in tensors.items():
        numbers, scales = pack(tensor, options.weights)
        yield f'<script type="application/octet-stream" data-tensor="{name}">'.encode()
        arrays = [array for array in (scales, numbers) if array is not None]  # the scales of its rows come first
        yield base64.b64encode(b"".join(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes() for array in arrays))
        yield b"</script>\n"
    yield model_to_end.encode()


def tensors_of(model: GPT) -> dict[str, Tensor]:
    """The weights of a model, and its table of positions as if it were learned, unless it rotates."""
    table = model.position_table(model.config.block_size)
    return model.state_dict() | ({"position_embedding.weight": table.detach()} if table.dim() == 2 else {})


def pack(tensor: Tensor, weights: str) -> tuple[np.ndarray, np.ndarray | None]:
    """`tensor` as the page holds it: in float16, or if `weights` is "int8" and it is a matrix, as `pack` of c_texts.py does.

    Raises UserError if a number is too large for float16.
    """
    numbers, scales = c_texts.pack(tensor.cpu().numpy(), "int8" if weights == "int8" and tensor.dim() == 2 else "float16")
    if not np.isfinite(numbers).all():
        raise UserError(f"a weight of {tensor.abs().max():g} is too large for float16; train with a higher optim.weight_decay")
    return numbers, scales


def describe(loaded: LoadedModel, options: ExportOptions) -> dict[str, Any]:
    """What the page knows about the model, as JSON types."""
    model, tokenizer = loaded.model, loaded.tokenizer
    items = {"end": end_in(tokenizer), "labels": list(options.labels)[:MAX_LABELS]}
    return {
        "run": options.name,
        "step": loaded.step,
        "val_loss": loaded.val_loss,
        "texts": options.texts,
        "parameters": model.parameter_count(),
        "shape": {**asdict(model.config), "vocab_size": model.vocab_size},
        "tokenizer": tokenizer.to_json(),
        "weights": options.weights,
        "items": items if loaded.config.data.items else None,
    }


def page_source(*, learns: bool) -> str:
    """The page without a model and without a policy: the template with its scripts."""
    source = TEMPLATE.read_text(encoding="utf-8")
    for place, (always, more) in SCRIPTS.items():
        scripts = [TEMPLATE.with_name(name).read_text(encoding="utf-8") for name in (*always, *(more if learns else ()))]
        source = source.replace(place, "\n".join(scripts))
    return source


def _policy(source: str) -> str:
    """A content security policy that lets the page run its own script and style and its worker, and load nothing."""
    (style,) = re.findall(r"<style>(.*?)</style>", source, re.DOTALL)
    (script,) = re.findall(r'<script type="module">(.*?)</script>', source, re.DOTALL)
    sources = f"script-src {allowed(script)} 'wasm-unsafe-eval'; style-src {allowed(style)}; worker-src blob:"
    rules = f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"
    return f'<meta http-equiv="Content-Security-Policy" content="{rules}">'
