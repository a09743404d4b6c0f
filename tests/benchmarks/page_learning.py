"""How fast a page learns: its scripts and its kernel in Node.js beside the same C compiled for this processor, in one thread.

    python tests/benchmarks/page_learning.py [ROUNDS]    rows for docs/lab/results/exports.jsonl; needs Node.js and ziglang

Each figure is the median of the rounds, in which the kinds take turns: the machine may do other work, so compare within a row.
"""

import copy
import json
import subprocess
import sys
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from chargpt.config import Config, ModelConfig, OptimConfig, TrainConfig  # noqa: E402
from chargpt.exchange import html, learning  # noqa: E402
from chargpt.kernels import compiler  # noqa: E402
from chargpt.kernels.attention import load_kernel  # noqa: E402
from chargpt.kernels.step import StepKernel  # noqa: E402
from chargpt.model import GPT  # noqa: E402
from chargpt.training.initialisation import initial_model  # noqa: E402
from chargpt.training.runtime import Runtime  # noqa: E402
from chargpt.training.trainer import Trainer  # noqa: E402

CHECK = ROOT / "tests" / "exchange" / "learn_check.js"
V, IDS = 65, np.random.default_rng(5).integers(0, 65, 100_000).astype(np.uint8)
SHAPES = ((2, 64, 128, 8, 30), (4, 128, 128, 8, 8), (6, 192, 256, 4, 4))  # layers, width, context, sequences, steps


def in_node(instructions: str, model: GPT, config: Config, steps: int) -> float:
    """Seconds of so many steps in Node.js, optimizer included."""
    weights = dict(model.named_parameters())
    plan = {
        "B": config.train.batch_size,
        "rate": 4e-3,
        "decay": 0.1,
        "startDecay": 0,
        "momentum": 0.9,
        "dropout": 0,
        "warmup": 3,
    }
    plan |= {"falls": 0.5, "steps": 1000, "seconds": 1e9, "seed": 1337, "optimizer": "muon"}
    question = {"numbers": learning.numbers(), "shape": {**asdict(config.model), "vocab_size": V}, "plan": plan, "steps": steps}
    question |= {"ids": IDS.tolist(), "val": IDS[:300].tolist(), "names": [*weights]}
    question["sizes"] = [tensor.numel() for tensor in weights.values()]
    data = json.dumps(question).encode() + b"\n" + b"".join(tensor.detach().numpy().tobytes() for tensor in weights.values())
    module = compiler._library(compiler.LEARN, [instructions], None, compiler.WEB_TARGET)
    scripts = [html.TEMPLATE.with_name(name) for name in ("tokenizer.js", "shapes.js", "engine.js", "learn.js")]
    command = ["node", "--experimental-wasm-relaxed-simd", CHECK, *scripts, module]  # newer ones have it without the flag
    done = subprocess.run(list(map(str, command)), input=data, capture_output=True, check=True, timeout=300)
    return json.loads(done.stdout.partition(b"\n")[0])["seconds"]


def in_c(instructions: str, model: GPT, config: Config, steps: int) -> float:
    """The same by the library for these instructions of the processor."""
    library = load_kernel(replace(compiler.STEP_FLOAT32, instructions=(instructions,)))
    runtime = Runtime(device=torch.device("cpu"), precision=torch.float32, threads=1, step=StepKernel(torch.float32, library))
    trainer = Trainer(copy.deepcopy(model), IDS, config, runtime=runtime)
    trainer.step()
    began = time.perf_counter()
    for _ in range(steps):
        trainer.step()
    return time.perf_counter() - began


KINDS = {
    "simd": partial(in_node, "simd"),
    "sse2": partial(in_c, "baseline"),
    "relaxed": partial(in_node, "relaxed"),
    "avx2": partial(in_c, "avx2"),
}


def main() -> None:
    torch.set_num_threads(1)
    compiler.load_web()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for n_layer, width, context, batch, steps in SHAPES:
        shape = ModelConfig(
            n_layer=n_layer, n_head=width // 32, n_embd=width, block_size=context, bias=True, positions="rotary"
        )
        config = Config(model=shape, optim=OptimConfig(name="muon"), train=TrainConfig(batch_size=batch, max_steps=1000))
        torch.manual_seed(0)
        model, found = initial_model(shape, V), {name: list[float]() for name in KINDS}
        for _ in range(rounds):
            for name, measure in KINDS.items():
                found[name].append(batch * context * steps / measure(model, config, steps))
        speeds = {name: round(median(values)) for name, values in found.items()}
        ratios = {
            "of_sse2": round(speeds["simd"] / speeds["sse2"], 2),
            "relaxed_of_sse2": round(speeds["relaxed"] / speeds["sse2"], 2),
        }
        print(json.dumps({"table": "page-learning", "parameters": model.parameter_count(), **speeds, **ratios}), flush=True)


if __name__ == "__main__":
    main()
