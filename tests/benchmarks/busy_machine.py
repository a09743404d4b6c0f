"""How long a training step takes beside other programs, for several ways in which OpenMP's threads wait.

    python tests/benchmarks/busy_machine.py [--rounds 3] [--preload libomp.so]

Each measurement is a process of its own, since OpenMP reads its variables once. The variants alternate within a round; the table
shows the median over the rounds of the mean time of a step.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHAPES = {"0.8M": (4, 4, 128, 64, 12), "10.65M": (6, 6, 384, 256, 4)}  # layers, heads, width, context, batch
GNU = {f"GOMP_SPINCOUNT={count}": {"GOMP_SPINCOUNT": str(count)} for count in (100_000, 30_000, 10_000, 1_000, 0)}
LLVM = {f"KMP_BLOCKTIME={time}": {"KMP_BLOCKTIME": time} for time in ("10ms", "1ms", "100us", "0")}
BUSY = "while True: pass"
SETTLING_SECONDS, SECONDS = 2.5, 4.0


def step_time(shape: str) -> float:
    """Mean seconds of a step, over `SECONDS`, of a model that trains on random ids."""
    import numpy as np

    from chargpt.config import Config, TrainConfig
    from chargpt.launch import keep_freed_memory
    from chargpt.model import GPT, GPTConfig
    from chargpt.training.runtime import choose_runtime
    from chargpt.training.trainer import Trainer

    keep_freed_memory()  # as train.py does
    layers, heads, width, context, batch = SHAPES[shape]
    settings = GPTConfig(n_layer=layers, n_head=heads, n_embd=width, block_size=context)
    config = Config(model=settings, train=TrainConfig(batch_size=batch, max_steps=10**6))
    ids = np.random.default_rng(0).integers(65, size=2**18).astype(np.uint16)
    trainer = Trainer(GPT(settings, vocab_size=65), ids, config, runtime=choose_runtime(config))
    for seconds in (SETTLING_SECONDS, SECONDS):
        started, steps = time.perf_counter(), 0
        while time.perf_counter() - started < seconds:
            trainer.step()
            steps += 1
        mean = (time.perf_counter() - started) / steps
    return mean


def measure(shape: str, variables: dict[str, str], *, busy: int, preload: str | None) -> float:
    """`step_time` of a variant in a process with these variables, beside `busy` endless loops. Seconds."""
    unset = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME", "LD_PRELOAD")
    environment = {name: value for name, value in os.environ.items() if name not in unset} | variables
    if preload:
        environment["LD_PRELOAD"] = preload
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
    try:
        child = [sys.executable, __file__, "--child", shape]
        return float(subprocess.run(child, env=environment, capture_output=True, text=True, check=True, cwd=ROOT).stdout)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--preload", help="another OpenMP library that stands in for the one of torch, such as LLVM's libomp.so"
    )
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--busy", nargs="+", type=int, default=[0, 1, 2], help="numbers of endless loops beside the training")
    parser.add_argument("--variants", nargs="+", help="a few of the variants, by name")
    parser.add_argument("--child", choices=list(SHAPES), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.child:
        print(step_time(options.child))
        return
    variants = {"default": {}} | (LLVM if options.preload else GNU) | {"one thread": {"OMP_NUM_THREADS": "1"}}
    if options.variants:
        variants = {name: variants[name] for name in options.variants}
    for shape in options.shapes:
        for busy in options.busy:
            times = {name: [] for name in variants}
            for turn in range(options.rounds):
                names = list(variants) if turn % 2 == 0 else list(variants)[::-1]
                for name in names:
                    times[name].append(measure(shape, variants[name], busy=busy, preload=options.preload))
            medians = {name: 1000 * statistics.median(values) for name, values in times.items()}
            best = min(medians.values())
            print(f"\n{shape} parameters, {busy} busy loop{'s' * (busy != 1)}: milliseconds a step, and relative to the best")
            for name, values in times.items():
                span = f"{1000 * min(values):.1f} - {1000 * max(values):.1f}"
                print(f"  {name:<24}{medians[name]:9.1f}   {medians[name] / best:5.2f}   ({span})", flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
