"""Characters a second in training, ours and nanoGPT's, beside what this machine can do at all.

    python tests/benchmarks/train_speed.py TEXT [--nanogpt DIR] [--before DIR] [--rounds N]

--before gives a checkout of an earlier chargpt, which takes turns too. The programs run as their users run them, as whole
processes, turn by turn, so that a machine whose speed drifts treats them alike; medians are printed. A step's time is each
program's own: nanoGPT prints it, ours logs it. The floor is the time that the matrix products of one step take by themselves,
forward and backward, at their own shapes: those with weights, and half of attention's, which is what causality leaves of them.
"""

import argparse
import json
import pickle
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from machine_speed import Floor, limits, machine_name, training_floor  # noqa: E402

from chargpt.device import cpu_precision  # noqa: E402
from chargpt.model import GPTConfig  # noqa: E402


@dataclass(frozen=True)
class Shape:
    name: str
    n_layer: int
    n_head: int
    n_embd: int
    block_size: int
    batch_size: int
    steps: int

    @property
    def chars(self) -> int:
        return self.block_size * self.batch_size


SHAPES = (
    Shape("0.1M (2/2/64, 16 x 128)", 2, 2, 64, 128, 16, 600),
    Shape("0.35M (3/3/96, 8 x 256)", 3, 3, 96, 256, 8, 250),
    Shape("0.8M (4/4/128, 12 x 64)", 4, 4, 128, 64, 12, 400),
    Shape("10.65M (6/6/384, 8 x 256)", 6, 6, 384, 256, 8, 25),
)


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def gemm_floor(shape: Shape, dtype: torch.dtype) -> Floor:
    """The matrix products of one step."""
    model = GPTConfig(n_layer=shape.n_layer, n_head=shape.n_head, n_embd=shape.n_embd, block_size=shape.block_size)
    sizes = {"batch_size": shape.batch_size, "vocab_size": 65}
    return training_floor(model, **sizes, dtype=dtype, device=torch.device("cpu"), seconds=0.4)


def train_ours(program: Path, text: Path, shape: Shape, folder: Path, *settings: str) -> dict[str, float]:
    """One run of ours: ms a step and loss at its end."""
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    command = [
        sys.executable,
        str(program / "train.py"),
        str(text),
        "--config",
        "shakespeare-cpu",
        "--run",
        str(run),
        f"model.n_layer={shape.n_layer}",
        f"model.n_head={shape.n_head}",
        f"model.n_embd={shape.n_embd}",
        f"model.block_size={shape.block_size}",
        f"train.batch_size={shape.batch_size}",
        f"train.max_steps={shape.steps}",
        f"train.log_interval={min(20, shape.steps // 5)}",
        "train.eval_interval=100000",
        "train.sample_length=0",
        f"data.cache={folder}/cache",
        *settings,
    ]
    peak_mb = run_process(command, folder)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rates = [line["chars_per_second"] for line in lines if line.get("chars_per_second")]
    losses = [line["train/loss"] for line in lines if "train/loss" in line]
    return {"ms": 1000 * shape.chars / statistics.median(rates), "loss": losses[-1], "peak": peak_mb}


def train_nanogpt(shape: Shape, folder: Path) -> dict[str, float]:
    """One run of nanoGPT's train.py: ms a step and loss at its end."""
    command = [
        sys.executable,
        "train.py",
        "--dataset=text",
        "--device=cpu",
        "--compile=False",
        "--out_dir=out",
        "--eval_iters=1",
        "--eval_interval=100000",
        "--log_interval=1",
        f"--block_size={shape.block_size}",
        f"--batch_size={shape.batch_size}",
        f"--n_layer={shape.n_layer}",
        f"--n_head={shape.n_head}",
        f"--n_embd={shape.n_embd}",
        "--dropout=0.0",
        f"--max_iters={shape.steps}",
        f"--lr_decay_iters={shape.steps}",
        "--learning_rate=1e-3",
        "--min_lr=1e-4",
        "--beta2=0.99",
        "--warmup_iters=100",
        "--gradient_accumulation_steps=1",
    ]
    log = folder / "nanogpt.log"
    peak_mb = run_process(command, folder / "nanogpt", log)
    found = re.findall(r"iter \d+: loss ([\d.]+), time ([\d.]+)ms", log.read_text())
    return {
        "ms": statistics.median(float(ms) for _, ms in found[3:]),
        "peak": peak_mb,
        "loss": statistics.mean(float(x) for x, _ in found[-min(20, shape.steps // 5) :]),
    }


# The peak of a child counts from its parent's size at the fork: a small process has to stand between.
LAUNCHER = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
print("peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
sys.exit(status)
"""


def run_process(command: list[str], folder: Path, log: Path | None = None) -> float:
    """Run to the end, its output in a file; its peak resident size, MB."""
    with open(log or folder / "ours.log", "w+") as out:
        status = subprocess.run(
            [sys.executable, "-c", LAUNCHER, *command], cwd=folder, stdout=out, stderr=subprocess.STDOUT
        ).returncode
        out.seek(0)
        printed = out.read()
    if status:
        raise SystemExit(f"{command[1]} failed:\n{printed[-2000:]}")
    return float(printed.split()[-1])


def prepare_nanogpt(source: Path, text: Path, folder: Path) -> None:
    """A copy of nanoGPT with the text encoded as its own script does: sorted characters, uint16, 90 % for training."""
    shutil.copytree(source, folder / "nanogpt", ignore=shutil.ignore_patterns(".git", "assets"))
    characters = text.read_bytes().decode()  # line ends as they are
    vocabulary = sorted(set(characters))
    ids = np.array([vocabulary.index(c) for c in characters], dtype=np.uint16)
    data = folder / "nanogpt" / "data" / "text"
    data.mkdir(parents=True)
    ids[: int(len(ids) * 0.9)].tofile(data / "train.bin")
    ids[int(len(ids) * 0.9) :].tofile(data / "val.bin")
    stoi = {c: i for i, c in enumerate(vocabulary)}
    (data / "meta.pkl").write_bytes(
        pickle.dumps({"vocab_size": len(vocabulary), "stoi": stoi, "itos": dict(enumerate(vocabulary))})
    )


def seconds_to(command: list[str], marker: str, folder: Path) -> float:
    """Seconds from the start of a process to its first line that contains `marker`."""
    started = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in process.stdout:
        if marker in line:
            break
    seconds = time.perf_counter() - started
    process.kill()
    process.wait()
    return seconds


def start_up(text: Path, folder: Path) -> None:
    ours = [
        sys.executable,
        "-u",
        str(ROOT / "train.py"),
        str(text),
        "--config",
        "shakespeare-cpu",
        f"data.cache={folder}/cache",
        "train.max_steps=1",
        "train.eval_interval=1",
        "train.sample_length=0",
    ]
    torch_alone = [sys.executable, "-c", "import torch; print('ready')"]
    pairs = []
    for _ in range(5):
        shutil.rmtree(folder / "start", ignore_errors=True)
        pairs.append(
            (seconds_to([*ours, "--run", str(folder / "start")], "step 1/1", folder), seconds_to(torch_alone, "ready", folder))
        )
    first, alone = (statistics.median(column) for column in zip(*pairs))
    print(f"\nfrom the command to the end of the first step, text encoded: {first:.2f} s; `import torch` alone: {alone:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--nanogpt", type=Path)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", type=int, help=f"the number of one shape, 0 to {len(SHAPES) - 1}")
    parser.add_argument("settings", nargs="*", help="settings for ours, such as runtime.precision=float32")
    arguments = parser.parse_intermixed_args()
    text = arguments.text.resolve()
    is_float32 = "runtime.precision=float32" in arguments.settings or cpu_precision() == torch.float32
    used = torch.float32 if is_float32 else torch.bfloat16  # by ours
    print(f"{machine_name(torch.device('cpu'))}, torch {torch.__version__}; {limits(torch.device('cpu'))}\n")
    print(
        f"| shape | | ms a step | characters a second | ratio | mean loss of the last steps | share of the {name_of(used)} floor "
        "| peak MB |"
    )
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if arguments.nanogpt:
            prepare_nanogpt(arguments.nanogpt.resolve(), text, folder)
        for number, shape in enumerate(SHAPES):
            if arguments.only not in (None, number):
                continue
            floors = {dtype: gemm_floor(shape, dtype) for dtype in dict.fromkeys((torch.float32, used))}
            rounds = {"ours": [], "before": [], "nanoGPT": []}
            for _ in range(arguments.rounds):
                if arguments.nanogpt:
                    rounds["nanoGPT"].append(train_nanogpt(shape, folder))
                if arguments.before:
                    before = arguments.before.resolve()
                    rounds["before"].append(train_ours(before, text, shape, folder, *arguments.settings))
                rounds["ours"].append(train_ours(ROOT, text, shape, folder, *arguments.settings))
            for dtype, floor in floors.items():
                ms = 1000 * floor.seconds
                speed = f"{name_of(dtype)} products: {floor.gflops:,.0f} GFLOP/s"
                print(f"| {shape.name} | floor, {speed} | {ms:.1f} | {1000 * shape.chars / ms:,.0f} | | | | |")
            median = {
                who: {key: statistics.median(r[key] for r in rows) for key in rows[0]} for who, rows in rounds.items() if rows
            }
            for who, row in median.items():
                ratio = f"{median['nanoGPT']['ms'] / row['ms']:.2f} x" if "nanoGPT" in median else ""
                if who == "ours" and "before" in median:
                    ratio += f", {median['before']['ms'] / row['ms']:.2f} x before"
                share = f"{100_000 * floors[used].seconds / row['ms']:.0f} %"
                print(
                    f"| {shape.name} | {who} | {row['ms']:.1f} | {1000 * shape.chars / row['ms']:,.0f} | {ratio} | {row['loss']:.3f} "
                    f"| {share} | {row['peak']:,.0f} |",
                    flush=True,
                )
        start_up(text, folder)


if __name__ == "__main__":
    main()
