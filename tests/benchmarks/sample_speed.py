"""Characters per second of sampling, by chargpt and by nanoGPT, beside the bound that this machine's memory sets.

    python tests/benchmarks/sample_speed.py [--nanogpt DIR] [--run RUN] [--rounds N]

All models have random weights and 65 characters. They take turns, so that a drift in the machine's speed affects all of them;
medians are printed. A text grows from one character to the whole block. nanoGPT has no cache and would take minutes, so it is
timed in the middle of the block, where the cost of a character is average. The floor is reading every weight once per character:
the time that torch takes to sum as many numbers, in large pages as ours are. Memory beyond the caches is read in the same way,
for comparison.
"""

import argparse
import functools
import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from machine_speed import limits, machine_name  # noqa: E402

from chargpt.model import GPT, GPTConfig  # noqa: E402
from chargpt.sampling.c_texts import PRECISIONS, c_engine, c_writer, in_large_pages, round_weights  # noqa: E402
from chargpt.sampling.options import SamplingOptions  # noqa: E402
from chargpt.sampling.torch_texts import torch_writer  # noqa: E402
from chargpt.sampling.writer import Writer  # noqa: E402

VOCAB = 65
BEYOND_CACHES = 75_000_000  # numbers


@dataclass(frozen=True)
class Shape:
    name: str
    n_layer: int
    n_head: int
    n_embd: int
    block_size: int

    def model(self) -> GPT:
        torch.manual_seed(0)
        config = GPTConfig(n_layer=self.n_layer, n_head=self.n_head, n_embd=self.n_embd, block_size=self.block_size, bias=True)
        return GPT(config, VOCAB).eval()


SHAPES = (Shape("0.8M (4/4/128, 64)", 4, 4, 128, 64), Shape("10.65M (6/6/384, 256)", 6, 6, 384, 256))


def rate(characters: int, work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return characters / (time.perf_counter() - started)


def ours(writer: Writer, batch: int, *, length: int, prompt: int = 1, overflow: str = "exact") -> float:
    """Characters per second of `batch` texts that continue `prompt` characters by `length`."""
    ids, texts, options = torch.randint(VOCAB, (prompt,)).tolist(), writer.new_texts(batch), SamplingOptions(overflow=overflow)
    again = Writer(lambda _: texts, writer.block_size)
    characters, started = 0, time.perf_counter()
    while not characters or time.perf_counter() - started < 0.3:
        for piece in again.pieces([ids] * batch, length, options, seeds=range(batch)):
            characters += sum(len(row) for row in piece.ids.tolist())
    return characters / (time.perf_counter() - started)


def nanogpt(folder: Path, shape: Shape) -> Callable[[int, int, int], float]:
    """A function (batch, prompt, length) -> characters a second by nanoGPT's own `generate`."""
    spec = importlib.util.spec_from_file_location("nanogpt", folder / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.GPTConfig(
        block_size=shape.block_size,
        vocab_size=VOCAB,
        n_layer=shape.n_layer,
        n_head=shape.n_head,
        n_embd=shape.n_embd,
        dropout=0.0,
        bias=True,
    )
    model = module.GPT(config).eval()

    def write(batch: int, prompt: int, length: int) -> float:
        ids = torch.randint(VOCAB, (batch, prompt))
        with torch.no_grad():
            return rate(batch * length, lambda: model.generate(ids, length, temperature=0.8, top_k=200))

    return write


def reading(numbers: int) -> Callable[[], float]:
    """A function -> how often a second as many float32 numbers can be read."""
    memory = torch.from_numpy(in_large_pages(4 * numbers)).view(torch.float32).zero_()
    return lambda: statistics.median(rate(1, memory.sum) for _ in range(max(3, 100_000_000 // numbers)))


def contenders(shape: Shape, arguments: argparse.Namespace) -> dict[str, Callable[[], float]]:
    """Everything to be timed, by name."""
    model, T = shape.model(), shape.block_size
    kernel, engine = c_engine(model.config)
    exact = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    stored = {name: round_weights(exact, name) for name in PRECISIONS}
    in_c = {name: c_writer(weights, model.config, kernel=kernel, precision=name) for name, weights in stored.items()}
    weights = 12 * shape.n_layer * shape.n_embd**2 + VOCAB * shape.n_embd
    timed = {"1: floor": reading(weights)}
    memory = reading(BEYOND_CACHES)
    timed["1: floor, if memory were read"] = lambda: memory() * BEYOND_CACHES / weights
    theirs = nanogpt(arguments.nanogpt, shape) if arguments.nanogpt else None
    for batch in (1, 32, 256):
        timed[f"{batch}: ours, {engine}"] = functools.partial(ours, in_c["float32"], batch, length=T - 1)
        timed[f"{batch}: ours, plain"] = functools.partial(ours, torch_writer(model), batch, length=T - 1)
        for precision in PRECISIONS[1:]:
            timed[f"{batch}: ours, {precision}"] = functools.partial(ours, in_c[precision], batch, length=T - 1)
        if theirs:
            timed[f"{batch}: nanoGPT"] = functools.partial(theirs, batch, T // 2, 1 + 16 // batch)
    for overflow, length in (("exact", 16), ("refill", 1000)):
        past = functools.partial(ours, in_c["float32"], 1, length=length, prompt=T, overflow=overflow)
        timed[f"1: ours past the block, {overflow}"] = past
    if theirs:
        timed["1: nanoGPT past the block"] = functools.partial(theirs, 1, T, 16)
    return timed


def first_character(run: str) -> tuple[float, float]:
    """Seconds until sample.py has written its first character, and until torch is imported."""

    def until_output(*command: str) -> float:
        started = time.perf_counter()
        with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            process.stdout.read(2)
            seconds = time.perf_counter() - started
            process.kill()
        return seconds

    ours, torch_alone = (str(ROOT / "sample.py"), run, "--prompt", "a"), ("-c", "import torch; print('ok')")
    pairs = [(until_output(*ours), until_output(*torch_alone)) for _ in range(5)]
    return tuple(map(statistics.median, zip(*pairs)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", type=Path, metavar="DIR")
    parser.add_argument("--run", help="a run, to time sample.py's first character")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", type=int, choices=(0, 1), help="the number of one shape")
    arguments = parser.parse_args()
    print(f"{machine_name(torch.device('cpu'))}, torch {torch.__version__}; {limits(torch.device('cpu'))}\n")
    print("| shape | texts at once: who | characters a second | share of the floor |\n|---|---|---|---|")
    for number, shape in enumerate(SHAPES):
        if arguments.only not in (None, number):
            continue
        timed = contenders(shape, arguments)
        rates: dict[str, list[float]] = {name: [] for name in timed}
        for _ in range(arguments.rounds):
            for name, work in timed.items():
                rates[name].append(work())
        fastest = statistics.median(rates["1: floor"])
        for name in sorted(rates, key=lambda name: int(name.partition(":")[0])):
            median = statistics.median(rates[name])
            share = f"{100 * median / fastest:.0f} %" if name.startswith("1:") else ""
            print(f"| {shape.name} | {name} | {median:,.0f} | {share} |", flush=True)
    if arguments.run:
        first, alone = first_character(arguments.run)
        print(f"\nfirst character of sample.py after {first:.2f} s; `import torch` alone takes {alone:.2f} s")


if __name__ == "__main__":
    main()
