"""What the tests of exported pages call: tiny models with uneven weights, and their pages."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from exchange_helpers import publish_model
from helpers import written

from chargpt.exchange import html
from chargpt.exchange.export import ExportOptions
from chargpt.model import GPT
from chargpt.sampling.c_texts import unpack
from chargpt.sampling.loaded_model import LoadedModel, load_model
from chargpt.sampling.options import SamplingOptions
from chargpt.sampling.torch_texts import torch_writer
from chargpt.text.tokenizer import Tokenizer

# No width is a multiple of the kernel's 16, and a context is not a multiple of its groups of 4.
SHAPE = {"n_layer": 2, "n_head": 3, "n_embd": 30, "block_size": 21, "bias": False}
TEXT = "The sea keeps its own hours.\nUnder a moving light, the stones wait. " * 4
VOCABULARIES = {
    "characters": Tokenizer("".join(sorted(set(TEXT)))),
    "folded": Tokenizer("".join(sorted(set(TEXT) - set(",.H"))), folded=True),
    "bytes": Tokenizer(None),
}


def new_model(folder: Path, tokenizer: Tokenizer, *, name: str = "sea", **shape: object) -> LoadedModel:
    """A model whose biases are not zero and whose logits differ by several units."""
    run = publish_model(folder / name, tokenizer=tokenizer, spread=0.15, **{**SHAPE, **shape})
    return load_model(str(run), folder, device="cpu")[0]


def page_of(loaded: LoadedModel, path: Path, *, weights: str = "float16", name: str | None = None, **options: object) -> None:
    """Write the page of a model."""
    html.write(loaded, path, ExportOptions(**{"name": name or loaded.run, "texts": ["sea.txt"], "weights": weights, **options}))


def packed(model: GPT, weights: str) -> GPT:
    """The model that a page computes with."""
    kind = model.config.positions
    copy = GPT(replace(model.config, positions="rotary" if kind == "rotary" else "learned"), model.vocab_size).eval()
    copy.load_state_dict({k: torch.tensor(unpack(*html.pack(v, weights))) for k, v in html.tensors_of(model).items()})
    return copy


@torch.inference_mode()
def logits_of(model: GPT, windows: list[list[int]]) -> np.ndarray:
    return torch.cat([model(torch.tensor([ids]))[0] for ids in windows]).numpy()


def greedy(loaded: LoadedModel, model: GPT, prompt: list[int], length: int) -> list[int]:
    """What `sample.py --temperature 0` continues `prompt` with."""
    options, never = SamplingOptions(temperature=0.0), loaded.tokenizer.never_sampled
    return written(torch_writer(model), [prompt], length, options, 0, never_sampled=never)[0].tolist()


def run_engine(
    page: Path, windows: list[list[int]], *, vocab_size: int, length: int, engine: str = "WebAssembly"
) -> tuple[np.ndarray, list[int]]:
    """What the engine of a page computes under Node.js: logits, and `length` ids that greedily continue the first of `windows`.

    The logits, float32, have a row for each id of each window. `engine` is "WebAssembly" or "JavaScript".
    """
    question = {"windows": windows, "prompt": windows[0], "length": length, "webAssembly": engine == "WebAssembly"}
    command = ["node", str(Path(__file__).parent / "exchange" / "page_check.js"), str(page)]
    done = subprocess.run(command, input=json.dumps(question).encode(), capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr.decode()
    rows = sum(map(len, windows))
    logits = np.frombuffer(done.stdout, "<f4", rows * vocab_size).reshape(rows, vocab_size)
    return logits, np.frombuffer(done.stdout, "<i4", offset=logits.nbytes).tolist()
