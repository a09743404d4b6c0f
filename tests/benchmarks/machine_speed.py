"""The limits of a machine, the least time that a step or a character takes on it, and the time that they do take.

    python tests/benchmarks/machine_speed.py [--device D] [--seconds S]

The limits are the speeds of matrix products, copies and reads in torch. The least time is that of the work that no program
avoids, measured by itself. What training and sampling take is measured on the objects that train.py and sample.py use. Each
measurement takes about S seconds, or twice that; all of them take one to three minutes. The tables are Markdown. Other programs
of this folder import the measurements.
"""

import argparse
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from chargpt.config import Config, ModelConfig, RuntimeConfig, TrainConfig  # noqa: E402
from chargpt.device import choose_device  # noqa: E402
from chargpt.launch import keep_freed_memory  # noqa: E402
from chargpt.model import GPT  # noqa: E402
from chargpt.planning.cli import settings_in  # noqa: E402
from chargpt.runs.models import gpt_config  # noqa: E402
from chargpt.sampling.c_texts import c_engine, c_writer  # noqa: E402
from chargpt.sampling.options import SamplingOptions  # noqa: E402
from chargpt.sampling.torch_texts import torch_writer  # noqa: E402
from chargpt.sampling.writer import Writer  # noqa: E402
from chargpt.settings import COMMAND_LINE, apply  # noqa: E402
from chargpt.training.runtime import Runtime, choose_runtime  # noqa: E402
from chargpt.training.trainer import Trainer  # noqa: E402

# Layers, heads, width, context, and the windows of a batch on a CPU and on a GPU.
SIZES = {
    "0.8M": (4, 4, 128, 64, 12, 256),
    "3.2M": (4, 4, 256, 128, 16, 128),
    "10.65M": (6, 6, 384, 256, 8, 64),
    "85M": (12, 12, 768, 256, 4, 64),
}
SLOW_STEP = 5.0  # seconds; on a CPU, larger models are left out
TEXTS = (1, 32)  # written at once
# Seconds. Calls that take less are timed in groups, so that reading the clock costs nothing.
LEAST_GROUP = 1e-3
CPU_SIDE, GPU_SIDE = 1024, 8192  # of the square matrices that are multiplied on a CPU, and on any other device
# float32 numbers that are copied or read: 256 MB.
NUMBERS = 2**26
# Steps that are not timed: with compiling, the first compiles and the second records CUDA graphs.
WARM_UP = 3
# Characters of the text that is trained on.
TEXT = 2**20


def apply_words(config: Config, words: list[str]) -> Config:
    """`config` with the settings of section.key=value words."""
    return apply(config, settings_in(words), where=COMMAND_LINE)


def synchronise(device: torch.device) -> None:
    """Wait until the device has done everything that it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    if device.type == "mps":
        torch.mps.synchronize()


def seconds_per_call(work: Callable[[], object], device: torch.device, *, seconds: float = 0.1, least: int = 5) -> float:
    """The median time of a call of `work`: of `least` groups of calls, and for `seconds`; of slow calls, fewer groups."""

    def group(calls: int) -> float:
        synchronise(device)
        started = time.perf_counter()
        for _ in range(calls):
            work()
        synchronise(device)
        return time.perf_counter() - started

    calls, times = 1, [group(1)]
    if times[0] < 4 * seconds:  # the first call also prepares memory and code
        times = [group(calls)]
    while times[0] < LEAST_GROUP:
        calls *= 2
        times = [group(calls)]
    while sum(times) < seconds or (len(times) < least and sum(times) < 4 * seconds):
        times.append(group(calls))
    return statistics.median(times) / calls


def product_speed(dtype: torch.dtype, device: torch.device, *, seconds: float = 1.0) -> float:
    """GFLOP/s of a product of two large square matrices."""
    side = CPU_SIDE if device.type == "cpu" else GPU_SIDE
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return 2 * side**3 / seconds_per_call(lambda: a @ b, device, seconds=seconds) / 1e9


def copy_speed(device: torch.device, *, seconds: float = 1.0) -> float:
    """GB/s, read plus written, of copying float32 numbers."""
    a = torch.ones(NUMBERS, device=device)
    b = torch.empty_like(a)
    return 2 * a.nbytes / seconds_per_call(lambda: b.copy_(a), device, seconds=seconds) / 1e9


def read_speed(device: torch.device, *, numbers: int = NUMBERS, seconds: float = 1.0) -> float:
    """GB/s of reading `numbers` float32 numbers, which are summed. Few of them fit into a cache and are read faster."""
    a = torch.ones(numbers, device=device)
    return a.nbytes / seconds_per_call(a.sum, device, seconds=seconds) / 1e9


def limits(device: torch.device, *, seconds: float = 1.0) -> str:
    """A line with the limits of the machine: it is printed beside tables of speeds, which move with them."""
    products = [
        f"{name} {three_digits(product_speed(dtype, device, seconds=seconds))} GFLOP/s"
        for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16))
    ]
    copies, reads = (three_digits(speed(device, seconds=seconds)) for speed in (copy_speed, read_speed))
    return f"products in {', '.join(products)}; copies {copies} GB/s, reads {reads} GB/s"


def three_digits(number: float) -> str:
    """A speed above 0, rounded to three digits."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def machine_name(device: torch.device) -> str:
    """The name of the processor, with the number of threads, or of the GPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    information = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.+)$", information.read_text(), re.MULTILINE) if information.is_file() else None
    processor = found[1].strip() if found else platform.processor() or platform.machine()
    if device.type != "cpu":
        return f"{processor}, {device.type}"
    threads = torch.get_num_threads()
    return f"{processor} ({torch.backends.cpu.get_cpu_capability()}), {threads} thread{'s' * (threads != 1)}"


class Floor(NamedTuple):
    """The matrix products of a training step."""

    seconds: float
    flop: float  # floating-point operations; a product of (M, K) and (K, N) has 2 M K N

    @property
    def gflops(self) -> float:
        """GFLOP/s."""
        return self.flop / self.seconds / 1e9


def weight_count(model: ModelConfig, vocab_size: int) -> int:
    """The numbers in the matrices that every character is multiplied with."""
    return 12 * model.n_layer * model.n_embd**2 + vocab_size * model.n_embd


def training_flop(model: ModelConfig, *, batch_size: int, vocab_size: int) -> float:
    """The operations of the products of one step, forward and backward. Those of attention count half, for causality."""
    attention = 6 * model.n_layer * batch_size * model.block_size**2 * model.n_embd
    return 6.0 * batch_size * model.block_size * weight_count(model, vocab_size) + attention


def training_floor(
    model: ModelConfig, *, batch_size: int, vocab_size: int, dtype: torch.dtype, device: torch.device, seconds: float = 0.1
) -> Floor:
    """The matrix products of one training step, forward and backward, each timed by itself at its own shape.

    Those with weights, and half of those of attention, which is what causality leaves of them.
    """
    M, C = batch_size * model.block_size, model.n_embd

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device).to(dtype)

    def timed(a: Tensor, b: Tensor) -> float:
        return seconds_per_call(lambda: a @ b, device, seconds=seconds)

    total = 0.0
    for K, N, count in _matrices(model, vocab_size):
        x, w, g = random(M, K), random(N, K), random(M, N)
        total += count * (timed(x, w.T) + timed(g, w) + timed(g.T, x))
    rows, T, d = batch_size * model.n_head, model.block_size, C // model.n_head
    q, scores = random(rows, T, d), random(rows, T, T)
    # Scores and the gradient of the weights; output and the gradient of q; the gradients of k and v: two of each, and half.
    total += model.n_layer * (timed(q, q.transpose(1, 2)) + timed(scores, q) + timed(scores.transpose(1, 2), q))
    return Floor(total, training_flop(model, batch_size=batch_size, vocab_size=vocab_size))


def sampling_floor(
    model: ModelConfig, texts: int, *, vocab_size: int, device: torch.device, gflops: float, seconds: float = 0.1
) -> float:
    """The seconds that the next character of this many texts takes in float32, at least.

    All weights are read once for all texts, and multiplied with each. Attention reads the keys and the values of a text and
    multiplies them with its query; a text has half of the context on average. The result is the longer of two times: to read
    all of this at the speed of memory, and to multiply at the speed `gflops`.
    """
    # Of each layer: C keys and C values for each of half of the positions.
    weights, cached = weight_count(model, vocab_size), texts * model.n_layer * model.block_size * model.n_embd
    numbers = weights + cached
    reading = 4 * numbers / read_speed(device, numbers=numbers, seconds=seconds) / 1e9
    return max(reading, 2 * (texts * weights + cached) / gflops / 1e9)


def _matrices(model: ModelConfig, vocab_size: int) -> list[tuple[int, int, int]]:
    """The matrices of weights: inputs, outputs, and how many there are of this shape."""
    C, L = model.n_embd, model.n_layer
    return [(C, 3 * C, L), (C, C, L), (C, 4 * C, L), (4 * C, C, L), (C, vocab_size, 1)]


@dataclass(frozen=True, kw_only=True)
class Size:
    """A model and the batches that it is trained on."""

    model: ModelConfig
    batch_size: int
    vocab_size: int = 65

    @property
    def characters(self) -> int:
        """The characters of a step."""
        return self.batch_size * self.model.block_size


def runtime_for(size: Size, device: torch.device, *, mode: str = "off") -> tuple[Config, Runtime]:
    """The settings of a training of this size, and what it computes with."""
    config = Config(model=size.model, train=TrainConfig(batch_size=size.batch_size))
    config = apply_words(config, [f"runtime.device={device}", f"runtime.compile={mode}"])
    return config, choose_runtime(config, {"compile": True})


def training_seconds(size: Size, config: Config, runtime: Runtime, *, seconds: float = 2.0, least: int = 5) -> float:
    """The median time of a training step on random characters, from at least `least` steps and for at least `seconds`."""
    ids = np.random.default_rng(0).integers(0, size.vocab_size, max(TEXT, 2 * size.characters)).astype(np.uint16)
    trainer = Trainer(GPT(gpt_config(size.model), size.vocab_size), ids, config, runtime=runtime)
    times: list[float] = []
    while len(times) < WARM_UP + least or sum(times[WARM_UP:]) < seconds:
        started = time.perf_counter()
        trainer.step()
        synchronise(runtime.device)
        times.append(time.perf_counter() - started)
    return statistics.median(times[WARM_UP:])


def sampling_speed(model: GPT, texts: int, *, seconds: float = 1.0) -> float:
    """Characters a second of this many texts together, which grow from one character to the whole context."""
    kernel, writer = c_engine(model.config)[0], torch_writer(model)
    if kernel is not None and model.token_embedding.weight.is_cpu:
        weights = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
        writer = c_writer(weights, model.config, kernel=kernel)
    engine = writer.new_texts(texts)
    again = Writer(lambda _: engine, writer.block_size)

    def write(length: int) -> float:
        """Seconds for new texts of `length`."""
        started = time.perf_counter()
        for piece in again.pieces([[0]] * texts, length, SamplingOptions(), seeds=range(texts)):
            piece.ids.tolist()
        return time.perf_counter() - started

    length = model.config.block_size - 1
    write(min(length, 8))
    times = [write(length)]
    while sum(times) < seconds:
        times.append(write(length))
    return texts * length / statistics.median(times)


def tables(device: torch.device, sizes: dict[str, tuple[int, ...]], *, seconds: float = 1.0) -> Iterator[str]:
    """The lines of the tables, as they are measured."""
    on_cpu = device.type == "cpu"
    shapes = {}
    for name, (layers, heads, width, context, *batches) in sizes.items():
        model = ModelConfig(n_layer=layers, n_head=heads, n_embd=width, block_size=context)
        shapes[name] = Size(model=model, batch_size=batches[0 if on_cpu else 1])
    precision = runtime_for(next(iter(shapes.values())), device)[1].precision
    yield f"{machine_name(device)}, torch {torch.__version__}, {precision}; {limits(device, seconds=seconds)}"
    gflops = {dtype: product_speed(dtype, device, seconds=seconds) for dtype in {torch.float32, precision}}
    for name, size in [*shapes.items()]:
        least = training_flop(size.model, batch_size=size.batch_size, vocab_size=size.vocab_size) / gflops[precision] / 1e9
        if on_cpu and least > SLOW_STEP:
            del shapes[name]
            yield f"not measured: {name}; the products of a step would take {least:.0f} seconds"
    yield "\n| training | ms a step | characters a second | share of the floor |\n|---|---|---|---|"
    for name, size in shapes.items():
        model, shape = size.model, {"batch_size": size.batch_size, "vocab_size": size.vocab_size}
        label = f"{name} ({model.n_layer}/{model.n_head}/{model.n_embd}, {size.batch_size} x {model.block_size})"
        for mode in ("off", "auto") if device.type == "cuda" else ("off",):
            try:
                config, runtime = runtime_for(size, device, mode=mode)
                step = training_seconds(size, config, runtime, seconds=2 * seconds)
                floor = training_floor(model, **shape, dtype=precision, device=device, seconds=seconds / 10)
                how = f", {runtime.slower or 'compiled'}" * (mode == "auto")
                share = 100 * floor.seconds / step
                yield f"| {label}{how} | {1000 * step:,.1f} | {size.characters / step:,.0f} | {share:.0f} % |"
            except torch.OutOfMemoryError:
                yield f"| {label} | not enough memory | | |"
    yield "\n| writing | texts at once | characters a second | share of the limit |\n|---|---|---|---|"
    for name, size in shapes.items():
        gpt = GPT(gpt_config(size.model), size.vocab_size).to(device).eval()
        for texts in TEXTS:
            rate = sampling_speed(gpt, texts, seconds=seconds)
            least = sampling_floor(
                size.model,
                texts,
                vocab_size=size.vocab_size,
                device=device,
                gflops=gflops[torch.float32],
                seconds=seconds / 10,
            )
            yield f"| {name}, context {size.model.block_size} | {texts} | {rate:,.0f} | {100 * rate * least / texts:.0f} % |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each measurement (default: 1)")
    options = parser.parse_args()
    keep_freed_memory()  # as train.py does
    device = choose_device(RuntimeConfig(device=options.device).device)
    with choose_runtime(Config(runtime=RuntimeConfig(device=str(device)))).applied():
        for line in tables(device, SIZES, seconds=options.seconds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
