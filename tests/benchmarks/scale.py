"""Milliseconds a step on several processes: ours, and torch's DistributedDataParallel around the same model.

    python tests/benchmarks/scale.py processes        1 process with 2 threads against 2 processes with 1 thread each
    python tests/benchmarks/scale.py link             2 network namespaces, their link unlimited and limited by tc (needs root)
    python tests/benchmarks/scale.py memory           the memory of the first process, at 1, 2 and 4 processes

The global batch is the same everywhere. Ours and DDP take turns within one pair of processes, so that a machine whose speed
drifts treats them alike; medians are printed. Both train in float32 with fused AdamW and clipping, on the same windows.
"""

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]


from chargpt.config import Config, OptimConfig, RuntimeConfig, TrainConfig  # noqa: E402
from chargpt.launch import keep_freed_memory  # noqa: E402
from chargpt.model import GPT, GPTConfig  # noqa: E402
from chargpt.training.batches import Batches  # noqa: E402
from chargpt.training.parallel import Group, join_group  # noqa: E402
from chargpt.training.runtime import choose_runtime  # noqa: E402
from chargpt.training.trainer import Trainer  # noqa: E402

VOCABULARY = 65
SHAPES = {  # layers, heads, width, context, batch, steps in a turn
    "0.8M": (4, 4, 128, 64, 12, 60),
    "10.65M": (6, 6, 384, 256, 8, 6),
}
ROUNDS = 3
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]


def make_config(shape: str) -> Config:
    n_layer, n_head, n_embd, block_size, batch_size, _ = SHAPES[shape]
    return Config(
        model=GPTConfig(n_layer=n_layer, n_head=n_head, n_embd=n_embd, block_size=block_size),
        train=TrainConfig(batch_size=batch_size),
        optim=OptimConfig(),
        runtime=RuntimeConfig(device="cpu", precision="float32", threads=torch.get_num_threads()),
    )


def make_ours(shape: str, group: Group) -> tuple[Callable[[], object], dict[str, float]]:
    """One step of ours, and the seconds spent in exchanges so far."""
    config, spent = make_config(shape), {"exchanges": 0.0}
    torch.manual_seed(0)
    trainer = Trainer(GPT(config.model, VOCABULARY), make_ids(), config, runtime=choose_runtime(config), group=group)
    torch.distributed.all_reduce = timed(torch.distributed.all_reduce, spent)
    return trainer.step, spent


def timed(function: Callable, spent: dict[str, float]) -> Callable:
    def call(*arguments: object) -> object:
        started = time.perf_counter()
        result = function(*arguments)
        spent["exchanges"] += time.perf_counter() - started
        return result

    return call


def make_ddp(shape: str, group: Group) -> Callable[[], object]:
    """One step of torch's DistributedDataParallel, or of the plain model for one process."""
    from torch.nn.parallel import DistributedDataParallel

    config = make_config(shape)
    torch.manual_seed(0)
    model = GPT(config.model, VOCABULARY)
    batches = Batches(make_ids(), config.model.block_size, batch_size=config.train.batch_size, seed=config.train.seed)
    rows = group.rows(config.train.batch_size)
    decayed = [[p for p in model.parameters() if (p.dim() > 1) == matrix] for matrix in (True, False)]
    groups = [{"params": decayed[0], "weight_decay": 0.1}, {"params": decayed[1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=True)
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True) if group.size > 1 else model
    steps = iter(range(10**9))

    def step() -> float:
        loss = wrapped(*batches.batch(next(steps), 0, rows))
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step


def make_ids() -> np.ndarray:
    return np.random.default_rng(0).integers(0, VOCABULARY, 10**6).astype(np.uint8)


def work(shape: str, kinds: list[str], rounds: int) -> None:
    """What each process does: turns of the kinds; the first process prints the result as JSON."""
    keep_freed_memory()  # as train.py does
    with join_group() as group:
        spent, steps, times = {"exchanges": 0.0}, {}, {kind: [] for kind in kinds}
        shares = []
        if "ours" in kinds:
            steps["ours"], spent = make_ours(shape, group)
        if "DDP" in kinds:
            steps["DDP"] = make_ddp(shape, group)
        for kind in kinds:
            for _ in range(3):
                steps[kind]()
        for _ in range(rounds):
            for kind in kinds:
                before, started = spent["exchanges"], time.perf_counter()
                for _ in range(SHAPES[shape][-1]):
                    last = time.perf_counter()
                    steps[kind]()
                    times[kind].append(time.perf_counter() - last)
                if kind == "ours":
                    shares.append((spent["exchanges"] - before) / (time.perf_counter() - started))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        if group.is_first:
            ms = {kind: 1000 * statistics.median(times[kind]) for kind in kinds if rounds}
            print(json.dumps({"ms": ms, "share": statistics.median(shares) if shares else 0.0, "peak": peak}), flush=True)


def run(command: list[str], threads: int) -> dict:
    """A command that prints one line of JSON; what it says."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise SystemExit(f"{command} failed:\n{done.stderr[-3000:]}")
    return json.loads(lines[-1])


def worker(shape: str, *kinds: str, rounds: int = ROUNDS) -> list[str]:
    return [str(Path(__file__).resolve()), "work", "--shape", shape, "--rounds", str(rounds), "--kinds", *kinds]


def several(size: int) -> list[str]:
    return [*TORCHRUN, "--standalone", "--nproc-per-node", str(size), "--"]


def compare_processes(shapes: list[str]) -> None:
    print(
        "| shape | processes x threads | ours, ms a step | in exchanges | DDP, ms a step | DDP / ours |\n|---|---|---|---|---|---|"
    )
    for shape in shapes:
        for size, threads in ((1, 2), (2, 1)):
            start = [sys.executable] if size == 1 else several(size)
            found = run([*start, *worker(shape, "ours", "DDP")], threads)
            print_row(shape, f"{size} x {threads}", found)


def print_row(shape: str, where: str, found: dict) -> None:
    ours, ddp = found["ms"]["ours"], found["ms"]["DDP"]
    print(f"| {shape} | {where} | {ours:.1f} | {found['share']:.0%} | {ddp:.1f} | {ddp / ours:.2f} |", flush=True)


def compare_links(shapes: list[str]) -> None:
    from parallel.machines import two_machines

    print("| shape | link | ours, ms a step | in exchanges | DDP, ms a step | DDP / ours |\n|---|---|---|---|---|---|")
    with two_machines() as machines:
        for rate in ("", "1gbit", "100mbit"):
            if rate:
                machines.limit(rate)
            for shape in shapes:
                words = worker(shape, "ours", "DDP", rounds=1 if rate == "100mbit" else ROUNDS)
                with other_machine(machines.torchrun(1, TORCHRUN, 1) + words):
                    found = run(machines.torchrun(0, TORCHRUN, 1) + words, 1)
                print_row(shape, rate or "not limited", found)


@contextlib.contextmanager
def other_machine(command: list[str]) -> Iterator[None]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        yield


def compare_memory(shapes: list[str]) -> None:
    empty = run([sys.executable, *worker(shapes[0], rounds=0)], 1)["peak"]
    print(f"The peak of a process that has only imported everything is {empty:,.0f} MB. Above that, in MB:\n")
    print("| shape | processes | ours | DDP |\n|---|---|---|---|")
    for shape in shapes:
        for size in (1, 2, 4):
            start = [sys.executable] if size == 1 else several(size)
            peaks = [run([*start, *worker(shape, kind, rounds=0)], 1)["peak"] - empty for kind in ("ours", "DDP")]
            print(f"| {shape} | {size} | {peaks[0]:,.0f} | {peaks[1]:,.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["processes", "link", "memory", "work"])
    parser.add_argument("--shape", choices=list(SHAPES), help="one shape alone")
    parser.add_argument("--kinds", nargs="*", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.what == "work":
        work(arguments.shape, arguments.kinds, arguments.rounds)
        return
    shapes = [arguments.shape] if arguments.shape else list(SHAPES)
    comparisons = {"processes": compare_processes, "link": compare_links, "memory": compare_memory}
    comparisons[arguments.what](shapes)


if __name__ == "__main__":
    main()
