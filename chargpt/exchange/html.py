"""`--to html`: one HTML file that opens from a disk, offline, in any browser, and writes text with the model inside.

page.html is the page without a model. This module packs the weights, measures what the packing costs, checks the page's engine
if Node.js is installed, and puts the pieces together. Everything that comes from the run is embedded as ASCII JSON or base64.
"""

import base64
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from chargpt.exchange.layouts import check_positions
from chargpt.exchange.page_check import find_node, run_engine
from chargpt.exchange.target import ExportOptions
from chargpt.files import SyncedFile
from chargpt.markup import allowed, as_json
from chargpt.runs.model_shape import blank_model
from chargpt.sampling.decoder import first_id, stream
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.sampling.rules import Sampling
from chargpt.terminal import UserError
from model import GPT, SINUSOID_SCALE

SOURCE = Path(__file__).with_name("page.html")
POLICY_HERE, MODEL_HERE = "<!-- the content security policy goes here -->", "<!-- the model goes here -->"
MAX_NUMBERS = 2**29  # weights, keys, values and queries of a page: 2 GiB in the browser
CHECKED_IDS = 512  # on which the page's engine is compared with PyTorch, or one context if that is longer
GREEDY = 200  # ids of the text that is compared
ENGINE_BOUND = 1e-3  # largest difference of logits between the page's engine and PyTorch, for logits up to 1


def write(loaded: LoadedModel, path: Path, options: ExportOptions) -> list[str]:
    """Write the page to `path`; returns lines about it. Raises UserError, see `ExportWriter`."""
    check_positions(loaded.model.config)
    _check_size(loaded.model)
    tensors = {name: tensor.numpy() for name, tensor in loaded.model.state_dict().items()}
    packed_model = _packed_model(loaded.model, options.weights)
    about = describe(loaded, options)
    about["precision"] = cost = _cost_of_packing(loaded.model, packed_model, options)
    about["check"] = "not made"
    _write_page(path, about, tensors, options.weights)
    about["check"] = check = _check_engine(path, loaded, packed_model, options)
    path.unlink()
    _write_page(path, about, tensors, options.weights)
    size = path.stat().st_size / 1e6
    return [
        f"weights     {options.weights}, {cost}",
        f"engine      {check}",
        f"page        {size:.2f} MB; open it in a browser",
    ]


class Packed:
    """A tensor as the page holds it: numbers in rows, and for int8 a factor for each row."""

    def __init__(self, numbers: np.ndarray, factors: np.ndarray | None = None) -> None:
        self.numbers = numbers
        self.factors = factors

    def data(self) -> bytes:
        """The bytes, little-endian: the factors, then the numbers."""
        factors = b"" if self.factors is None else self.factors.astype("<f4").tobytes()
        return factors + self.numbers.astype(self.numbers.dtype.newbyteorder("<")).tobytes()


def pack(tensor: np.ndarray, weights: str) -> Packed:
    """`tensor` in float16, or if `weights` is "int8" and it is a matrix, in whole numbers with a factor for each row.

    Raises UserError if a number is too large for float16.
    """
    if weights == "int8" and tensor.ndim == 2:
        factors = np.abs(tensor).max(axis=1) / np.float32(127)
        factors[factors == 0] = 1
        return Packed(np.rint(tensor / factors[:, None]).clip(-127, 127).astype(np.int8), factors)
    with np.errstate(over="ignore"):
        numbers = tensor.astype(np.float16)
    if not np.isfinite(numbers).all():
        raise UserError(
            f"the weights: {np.abs(tensor).max():g} among them, too large for float16; train with more weight_decay"
        )
    return Packed(numbers)


def unpack(packed: Packed) -> np.ndarray:
    """The numbers that the page computes with, float32."""
    numbers = packed.numbers.astype(np.float32)
    return numbers if packed.factors is None else numbers * packed.factors[:, None]


def describe(loaded: LoadedModel, options: ExportOptions) -> dict[str, Any]:
    """What the page knows about the model, as JSON types."""
    model, tokenizer = loaded.model, loaded.tokenizer
    return {
        "run": options.name,
        "step": loaded.step,
        "val_loss": loaded.val_loss,
        "texts": options.texts,
        "parameters": model.parameter_count(),
        "shape": {**asdict(model.config), "vocab_size": model.vocab_size, "sinusoid_scale": SINUSOID_SCALE},
        "tokenizer": tokenizer.to_json(),
        "never": tokenizer.never_sampled[0] if tokenizer.never_sampled else -1,
        "first": first_id(tokenizer),
        "weights": options.weights,
    }


def _packed_model(model: GPT, weights: str) -> GPT:
    """The model that the page computes with. It is made a tensor at a time: a second model is all that it takes."""
    packed = blank_model(model.config, model.vocab_size).eval()
    tensors = packed.state_dict()
    for name, tensor in model.state_dict().items():
        tensors[name].copy_(torch.from_numpy(unpack(pack(tensor.numpy(), weights))))
    return packed


def _check_size(model: GPT) -> None:
    config = model.config
    cached = 6 * config.n_layer * config.block_size * config.n_embd  # keys, values and queries, twice
    numbers = model.parameter_count() + cached
    if numbers > MAX_NUMBERS:
        raise UserError(f"model: {numbers:,} weights, keys and values; a page can hold {MAX_NUMBERS:,}; use --to onnx")


@torch.inference_mode()
def _cost_of_packing(model: GPT, packed: GPT, options: ExportOptions) -> str:
    """In words: the loss before and after, and the largest difference of the logits, on the reference text."""
    losses, difference = [0.0, 0.0], 0.0
    for window in _windows(options.ids, model.config.block_size):
        ids, targets = torch.from_numpy(window[:-1])[None], torch.from_numpy(window[1:])
        both = [network(ids)[0] for network in (model, packed)]
        difference = max(difference, (both[0] - both[1]).abs().max().item())
        for i, logits in enumerate(both):
            losses[i] += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
    before, after = (loss / (len(options.ids) - 1) for loss in losses)
    return f"loss {after:.4f} instead of {before:.4f} on {options.ids_from}; logits differ by at most {difference:.1e}"


def _windows(ids: np.ndarray, block_size: int) -> Iterator[np.ndarray]:
    """Windows of at most block_size + 1 ids, inputs and targets; each begins with the last id of the one before."""
    return (ids[start : start + block_size + 1] for start in range(0, len(ids) - 1, block_size))


@torch.inference_mode()
def _check_engine(page: Path, loaded: LoadedModel, packed: GPT, options: ExportOptions) -> str:
    """In words: how the page's engine compares with PyTorch. Raises UserError if it differs by more than ENGINE_BOUND."""
    node = find_node()
    if node is None:
        return "not checked, because Node.js is not installed"
    block_size = packed.config.block_size
    ids = options.ids[: max(CHECKED_IDS, block_size)]
    windows = [ids[start : start + block_size] for start in range(0, len(ids), block_size)]
    logits, written = run_engine(node, page, windows, vocab_size=packed.vocab_size, length=GREEDY)
    expected = torch.cat([packed(torch.from_numpy(window)[None])[0] for window in windows]).numpy()
    difference, largest = np.abs(logits - expected).max(), max(1.0, np.abs(expected).max())
    if not difference <= ENGINE_BOUND * largest:
        raise UserError(f"the page's engine: its logits differ from PyTorch's by {difference:.1e}; please report this")
    equal = _equal_at_the_beginning(written, _greedy(loaded, windows[0]))
    where = f"equal to sample.py's for {'all' if equal == GREEDY else 'the first'} {equal} of {GREEDY}"
    return f"checked under Node.js: logits differ from PyTorch's by at most {difference:.1e}; greedy text {where}"


def _greedy(loaded: LoadedModel, prompt: np.ndarray) -> list[int]:
    """GREEDY ids by the model before packing."""
    settings = {"overflow": "refill", "generator": torch.Generator(), "never_sampled": loaded.tokenizer.never_sampled}
    made = stream(loaded.model, torch.from_numpy(prompt)[None], GREEDY, Sampling(temperature=0.0), **settings)
    return [int(id) for id in made]


def _equal_at_the_beginning(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def _write_page(path: Path, about: dict[str, Any], tensors: dict[str, np.ndarray], weights: str) -> None:
    """Write the page, a tensor at a time."""
    source = SOURCE.read_text(encoding="utf-8")
    head, model_to_end = source.replace(POLICY_HERE, _policy(source)).split(MODEL_HERE)
    with SyncedFile(path) as file:
        file.write(memoryview(head.encode()))
        file.write(memoryview(f'<script type="application/json" id="about">{as_json(about)}</script>\n'.encode()))
        for name, tensor in tensors.items():
            packed = pack(tensor, weights)
            rows, columns = tensor.shape if tensor.ndim == 2 else (1, tensor.size)
            tag = f'data-tensor="{name}" data-rows="{rows}" data-columns="{columns}" data-format="{packed.numbers.dtype}"'
            file.write(memoryview(f'<script type="application/octet-stream" {tag}>'.encode()))
            file.write(memoryview(base64.b64encode(packed.data())))
            file.write(memoryview(b"</script>\n"))
        file.write(memoryview(model_to_end.encode()))


def _policy(source: str) -> str:
    """A content security policy that lets the page run its own script and style and its worker, and load nothing."""
    (style,) = re.findall(r"<style>(.*?)</style>", source, re.DOTALL)
    (script,) = re.findall(r'<script type="module">(.*?)</script>', source, re.DOTALL)
    rules = (
        "default-src 'none'",
        f"script-src {allowed(script)} 'wasm-unsafe-eval'",
        f"style-src {allowed(style)}",
        "worker-src blob:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return f'<meta http-equiv="Content-Security-Policy" content="{"; ".join(rules)}">'
