"""`--to html`: one HTML file that opens from a disk, offline, in any browser, and writes text with the model inside.

The page has three sources: page.html, engine.js (the model, which runs in a worker) and interface.js. This module packs the
weights, measures what the packing costs, checks the engine if Node.js is installed, and assembles the page. Everything that
comes from the run is embedded as ASCII JSON or base64.
"""

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chargpt.exchange.export import ExportOptions
from chargpt.files import SyncedFile
from chargpt.markup import allowed, as_json
from chargpt.model import GPT, SINUSOID_SCALE
from chargpt.runs.blank_model import blank_model
from chargpt.sampling import stored_weights
from chargpt.sampling.decoder import stream
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.sampling.prompt import first_id
from chargpt.sampling.rules import Sampling
from chargpt.terminal import UserError
from chargpt.text.items import ItemMarks, end_in
from chargpt.text.windows import IGNORED

TEMPLATE = Path(__file__).with_name("page.html")
# The sources of scripts, and the comments of the template that they replace.
SCRIPTS = {"/* the engine goes here */\n": "engine.js", "/* the interface goes here */\n": "interface.js"}
# The comments of the template that the policy and the model replace.
POLICY_HERE = "<!-- the content security policy goes here -->"
MODEL_HERE = "<!-- the model goes here -->"
# Weights, keys, values and queries of a page: 2 GiB in the browser.
MAX_NUMBERS = 2**29
# Labels in the menu of a page: the most frequent.
MAX_LABELS = 500
# Ids on which the page's engine is compared with PyTorch, or one context if that is longer.
CHECKED_IDS = 512
# Ids of the greedy text that is compared.
GREEDY = 200
# The largest difference of logits between the page's engine and PyTorch, for logits up to 1.
ENGINE_BOUND = 1e-3
# Runs the engine of a page under Node.js.
CHECK = Path(__file__).with_name("page_check.js")
# Seconds for Node.js to compare a page.
MAX_SECONDS = 600


def write(loaded: LoadedModel, path: Path, options: ExportOptions) -> list[str]:
    """Write the page to `path`; returns lines about it. Raises UserError, see `ExportWriter`."""
    _check_size(loaded.model)
    tensors = loaded.model.state_dict()
    packed_model = _packed_model(loaded.model, options.weights)
    about = describe(loaded, options)
    about["precision"] = cost = _cost_of_packing(loaded, packed_model, options)
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


def pack(tensor: Tensor, weights: str) -> tuple[Tensor, Tensor | None]:
    """`tensor` as the page holds it: in float16, or if `weights` is "int8" and it is a matrix, as `stored_weights.pack` does.

    Raises UserError if a number is too large for float16.
    """
    numbers, scales = stored_weights.pack(tensor, "int8" if weights == "int8" and tensor.dim() == 2 else "float16")
    if not numbers.isfinite().all():
        raise UserError(f"the weights: {tensor.abs().max():g} among them, too large for float16; train with more weight_decay")
    return numbers, scales


def content_of(numbers: Tensor, scales: Tensor | None) -> bytes:
    """The bytes of a packed tensor, little-endian: the scales of its rows, if it has them, then the numbers."""
    arrays = [array.numpy() for array in (scales, numbers) if array is not None]
    return b"".join(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes() for array in arrays)


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
        "shape": {**asdict(model.config), "vocab_size": model.vocab_size, "sinusoid_scale": SINUSOID_SCALE},
        "tokenizer": tokenizer.to_json(),
        "never": tokenizer.never_sampled[0] if tokenizer.never_sampled else -1,
        "first": first_id(tokenizer),
        "weights": options.weights,
        "items": items if loaded.config.data.items else None,
    }


def _packed_model(model: GPT, weights: str) -> GPT:
    """The model that the page computes with. It is made a tensor at a time: a second model is all that it takes."""
    packed = blank_model(model.config, model.vocab_size).eval()
    tensors = packed.state_dict()
    for name, tensor in model.state_dict().items():
        tensors[name].copy_(stored_weights.unpack(*pack(tensor, weights)))
    return packed


def _check_size(model: GPT) -> None:
    config = model.config
    cached = 6 * config.n_layer * config.block_size * config.n_embd  # keys, values and queries, twice
    numbers = model.parameter_count() + cached
    if numbers > MAX_NUMBERS:
        raise UserError(f"model: {numbers:,} weights, keys and values; a page can hold {MAX_NUMBERS:,}; use --to gguf")


@torch.inference_mode()
def _cost_of_packing(loaded: LoadedModel, packed: GPT, options: ExportOptions) -> str:
    """In words: the loss before and after, and the largest difference of the logits, on the reference text."""
    model, losses, difference = loaded.model, [0.0, 0.0], 0.0
    counted = np.ones(len(options.ids), bool)
    if loaded.config.data.label_fields:  # labels are not learned
        counted = ItemMarks.of(loaded.tokenizer, has_labels=True).counted(options.ids)
    wanted = np.where(counted, options.ids, IGNORED)
    for start in range(0, len(options.ids) - 1, model.config.block_size):
        window = options.ids[start : start + model.config.block_size + 1]
        ids, targets = torch.from_numpy(window[:-1])[None], torch.from_numpy(wanted[start + 1 : start + len(window)])
        both = [network(ids)[0] for network in (model, packed)]
        difference = max(difference, (both[0] - both[1]).abs().max().item())
        for i, logits in enumerate(both):
            losses[i] += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
    before, after = (loss / max(1, counted[1:].sum()) for loss in losses)
    return f"loss {after:.4f} instead of {before:.4f} on {options.ids_from}; logits differ by at most {difference:.1e}"


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
    made = stream(
        loaded.model,
        torch.from_numpy(prompt)[None],
        GREEDY,
        Sampling(temperature=0.0),
        overflow="refill",
        generator=torch.Generator(),
        never_sampled=loaded.tokenizer.never_sampled,
    )
    return [int(i) for i in made]


def _equal_at_the_beginning(a: list[int], b: list[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def _write_page(path: Path, about: dict[str, Any], tensors: Mapping[str, Tensor], weights: str) -> None:
    """Write the page, a tensor at a time."""
    source = page_source()
    head, model_to_end = source.replace(POLICY_HERE, _policy(source)).split(MODEL_HERE)
    with SyncedFile(path) as file:
        file.write(memoryview(head.encode()))
        file.write(memoryview(f'<script type="application/json" id="about">{as_json(about)}</script>\n'.encode()))
        for name, tensor in tensors.items():
            numbers, scales = pack(tensor, weights)
            rows, columns = tensor.shape if tensor.dim() == 2 else (1, tensor.numel())
            kind = str(numbers.dtype).removeprefix("torch.")
            tag = f'data-tensor="{name}" data-rows="{rows}" data-columns="{columns}" data-format="{kind}"'
            file.write(memoryview(f'<script type="application/octet-stream" {tag}>'.encode()))
            file.write(memoryview(base64.b64encode(content_of(numbers, scales))))
            file.write(memoryview(b"</script>\n"))
        file.write(memoryview(model_to_end.encode()))


def page_source() -> str:
    """The page without a model and without a policy: the template with its scripts."""
    source = TEMPLATE.read_text(encoding="utf-8")
    for place, name in SCRIPTS.items():
        source = source.replace(place, TEMPLATE.with_name(name).read_text(encoding="utf-8"))
    return source


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


def find_node() -> str | None:
    """The path of Node.js; None if it is not installed."""
    return shutil.which("node")


def run_engine(
    node: str,
    page: Path,
    windows: Sequence[Sequence[int] | np.ndarray],
    *,
    vocab_size: int,
    length: int,
    engine: str = "WebAssembly",
) -> tuple[np.ndarray, list[int]]:
    """What the engine of `page` computes: logits, and `length` ids that greedily continue the first of `windows`.

    Each window has at most block_size ids. The logits, float32, have a row for each id of each window. `engine` is
    "WebAssembly" or "JavaScript", what browsers without WebAssembly use. Raises UserError if Node.js fails.
    """
    question = {
        "windows": [[int(i) for i in window] for window in windows],
        "prompt": [int(i) for i in windows[0]],
        "length": length,
        "webAssembly": engine == "WebAssembly",
    }
    # The page and its script are read by Node.js as files. Nothing that comes from the run is in the command.
    command = [node, "--max-old-space-size=8192", str(CHECK), str(page)]
    try:
        done = subprocess.run(command, input=json.dumps(question).encode(), capture_output=True, timeout=MAX_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{node}: {error}; remove it from PATH to export without this check") from None
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise UserError(f"{node}: {' '.join(reason)}; remove it from PATH to export without this check")
    rows = sum(map(len, windows))
    logits = np.frombuffer(done.stdout, "<f4", rows * vocab_size).reshape(rows, vocab_size)
    return logits, np.frombuffer(done.stdout, "<i4", offset=logits.nbytes).tolist()
