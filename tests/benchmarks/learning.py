"""What is learned from the same characters and in the same seconds, by ours and by nanoGPT.

    python tests/benchmarks/learning.py TEXT [--ours "CONFIG [SETTING ...]" ...] [--nanogpt DIR --recipe cpu|gpu [--steps N]]
                                        [--seeds 1,2,3] [--points N] [--target LOSS]

Each recipe trains as its users train it, as a whole process, and leaves its weights at several points on the way. All of them
are then judged by the same code: chargpt/training/evaluation.py, the whole validation split in windows of the context length. Seconds
are those of the steps alone: steps times the median step.
"""

import argparse
import importlib
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn
from train_speed import ROOT, prepare_nanogpt

sys.path.insert(0, str(ROOT))
from chargpt.runs.checkpoint import load, steps  # noqa: E402
from chargpt.runs.models import restore_model  # noqa: E402
from chargpt.training.evaluation import evaluate  # noqa: E402


@dataclass(frozen=True)
class Recipe:
    """nanoGPT's, from its README and config/train_shakespeare_char.py."""

    shape: dict[str, int]
    batch_size: int
    steps: int
    dropout: float
    dtype: str


RECIPES = {
    "cpu": Recipe({"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64}, 12, 2000, 0.0, "float32"),
    "gpu": Recipe({"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 256}, 64, 5000, 0.2, "bfloat16"),
}

Point = tuple[int, float, float]  # characters seen, seconds, loss


class Judged(nn.Module):
    """nanoGPT's model, called as `evaluate` calls one."""

    def __init__(self, source: Path, file: Path) -> None:
        super().__init__()
        sys.path.insert(0, str(source))
        sys.modules.pop("model", None)
        theirs = importlib.import_module("model")

        saved = torch.load(file, weights_only=False)
        self.inner = theirs.GPT(theirs.GPTConfig(**saved["model_args"]))
        self.inner.load_state_dict(saved["model"])
        sys.modules.pop("model")
        sys.path.remove(str(source))
        self.config = SimpleNamespace(block_size=saved["model_args"]["block_size"])
        self.vocab_size = saved["model_args"]["vocab_size"]
        self.token_embedding = self.inner.transformer.wte

    def forward(self, idx: Tensor, targets: Tensor) -> Tensor:
        return self.inner(idx, targets)[1]


# nanoGPT keeps one checkpoint, has one seed, and heeds its dtype only on a GPU.
WRAPPER = """
import runpy, sys, torch, model
if "--dtype=bfloat16" in sys.argv and "--device=cpu" in sys.argv:
    model.GPT.forward = torch.autocast("cpu", torch.bfloat16)(model.GPT.forward)
save, seed = torch.save, torch.manual_seed
torch.save = lambda state, path: save({k: state[k] for k in ("model", "model_args")}, f"{path}-{state['iter_num']:08d}")
number = int(sys.argv.pop())
torch.manual_seed = lambda _: seed(number)
runpy.run_path("train.py", run_name="__main__")
"""


def train_nanogpt(recipe: Recipe, folder: Path, val: np.ndarray, *, max_steps: int, points: int, seed: int) -> list[Point]:
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    options = {
        **recipe.shape,
        "batch_size": recipe.batch_size,
        "dropout": recipe.dropout,
        "dtype": recipe.dtype,
        "max_iters": max_steps,
        "lr_decay_iters": max_steps,
        "eval_interval": max_steps // points,
        "eval_iters": 1,
        "log_interval": 1,
        "dataset": "text",
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "compile": torch.cuda.is_available(),
        "out_dir": out,
        "learning_rate": 1e-3,
        "min_lr": 1e-4,
        "beta2": 0.99,
        "warmup_iters": 100,
        "gradient_accumulation_steps": 1,
        "always_save_checkpoint": True,
    }
    command = [sys.executable, "-c", WRAPPER, *(f"--{key}={value}" for key, value in options.items()), str(seed)]
    printed = subprocess.run(command, cwd=folder / "nanogpt", capture_output=True, text=True)
    if printed.returncode:
        raise SystemExit(printed.stderr[-2000:])
    ms = statistics.median(float(x) for x in re.findall(r"iter \d+: loss [\d.]+, time ([\d.]+)ms", printed.stdout)[3:])
    found = []
    for file in sorted(out.glob("ckpt.pt-*")):
        step = int(file.name[-8:])
        loss = evaluate(Judged(folder / "nanogpt", file), val)
        found.append((step * recipe.batch_size * recipe.shape["block_size"], step * ms / 1000, loss))
    return found


def train_ours(text: Path, words: list[str], folder: Path, val: np.ndarray, *, points: int, seed: int) -> list[Point]:
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    command = [
        sys.executable,
        str(ROOT / "train.py"),
        str(text),
        "--config",
        *words,
        "--run",
        str(run),
        f"train.seed={seed}",
        "checkpoint.keep=1000",
        "train.eval_interval=1000000",
        "train.sample_length=0",
        f"data.cache={folder}/cache",
    ]
    if not any("checkpoint.interval" in word for word in words):
        total = next((int(word.split("=")[1]) for word in words if word.startswith("train.max_steps=")), None) or steps_of(
            words[0]
        )
        command.append(f"checkpoint.interval={max(1, total // points)}")
    printed = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if printed.returncode:
        raise SystemExit(printed.stderr[-2000:])
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rate = statistics.median(line["chars_per_second"] for line in lines if line.get("chars_per_second"))
    found = []
    for path in steps(run):
        checkpoint = load(path, training=False)
        if checkpoint.step == 0:
            continue
        model, config = restore_model(checkpoint), checkpoint.state.config
        seen = checkpoint.step * config.train.batch_size * config.train.accumulate * config.model.block_size
        found.append((seen, seen / rate, evaluate(model, val)))
    return found


def steps_of(config: str) -> int:
    path = next(path for path in (Path(config), ROOT / "configs" / f"{config}.yaml") if path.is_file())
    return int(re.search(r"max_steps: (\d+)", path.read_text())[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--ours", action="append", default=[], help="a config and settings in quotes; may be given again")
    parser.add_argument("--nanogpt", type=Path)
    parser.add_argument("--recipe", choices=sorted(RECIPES), default="cpu")
    parser.add_argument("--steps", type=int, help="of nanoGPT; its recipe's own otherwise")
    parser.add_argument("--seeds", default="1337")
    parser.add_argument("--points", type=int, default=4)
    parser.add_argument("--target", type=float, help="a loss: say when each recipe is first seen below it")
    arguments = parser.parse_args()
    text, recipe = arguments.text.resolve(), RECIPES[arguments.recipe]
    characters = text.read_bytes().decode()  # line ends as they are
    vocabulary = {c: i for i, c in enumerate(sorted(set(characters)))}
    val = np.array([vocabulary[c] for c in characters[int(len(characters) * 0.9) :]], dtype=np.uint16)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; {len(val):,} characters to validate on\n")
    print("| recipe | seed | characters seen: loss after seconds |\n|---|---|---|")
    summary = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if arguments.nanogpt:
            prepare_nanogpt(arguments.nanogpt.resolve(), text, folder)
        for seed in map(int, arguments.seeds.split(",")):
            curves = {}
            if arguments.nanogpt:
                curves["nanoGPT"] = train_nanogpt(
                    recipe, folder, val, max_steps=arguments.steps or recipe.steps, points=arguments.points, seed=seed
                )
            for words in arguments.ours:
                curves[words] = train_ours(text, words.split(), folder, val, points=arguments.points, seed=seed)
            for name, curve in curves.items():
                cells = "; ".join(f"{seen / 1e6:.2f}M: {loss:.4f} after {seconds:.1f} s" for seen, seconds, loss in curve)
                print(f"| {name} | {seed} | {cells} |", flush=True)
                summary.setdefault(name, []).append(curve)
    print(
        "\n| recipe | loss at the end, mean (lowest to highest) | bits per character | seconds of training | seconds to the target |"
    )
    print("|---|---|---|---|---|")
    for name, curves in summary.items():
        ends = [curve[-1][2] for curve in curves]
        seconds = statistics.median(curve[-1][1] for curve in curves)
        reached = [next((s for _, s, loss in curve if loss <= (arguments.target or 0)), None) for curve in curves]
        to_target = f"{statistics.median(reached):.1f}" if all(reached) else ""
        print(
            f"| {name} | {statistics.mean(ends):.4f} ({min(ends):.4f} to {max(ends):.4f}) | {statistics.mean(ends) / np.log(2):.4f} "
            f"| {seconds:.1f} | {to_target} |"
        )


if __name__ == "__main__":
    main()
