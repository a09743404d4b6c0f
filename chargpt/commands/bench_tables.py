"""The tables of `python -m chargpt bench`, in Markdown. They are the same on every device."""

import sys
from collections.abc import Iterator, Mapping

import torch

from chargpt.analysis.speed import (
    Size,
    copy_speed,
    machine_name,
    product_speed,
    read_speed,
    runtime_for,
    sampling_floor,
    sampling_speed,
    three_digits,
    training_floor,
    training_flop,
    training_seconds,
)
from chargpt.terminal import notice_line
from model import GPT, GPTConfig

SLOW_STEP = 5.0  # seconds; on a CPU, larger models are left out
TEXTS = (1, 32)  # sampled at once
# Layers, heads, width, context, and the windows of a batch on a CPU and on a GPU.
SIZES = {
    "0.8M": (4, 4, 128, 64, 12, 256),
    "3.2M": (4, 4, 256, 128, 16, 128),
    "10.65M": (6, 6, 384, 256, 8, 64),
    "85M": (12, 12, 768, 256, 4, 64),
}


def tables(
    device: torch.device, sizes: Mapping[str, tuple[int, ...]], *, seconds: float = 1.0, slow_step: float = SLOW_STEP
) -> Iterator[str]:
    """The lines, as they are measured. Each measurement takes about `seconds`, or twice that; what it is goes to stderr."""
    on_cpu = device.type == "cpu"
    shapes = {}
    for name, (layers, heads, width, context, *batches) in sizes.items():
        model = GPTConfig(n_layer=layers, n_head=heads, n_embd=width, block_size=context)
        shapes[name] = Size(model=model, batch_size=batches[0 if on_cpu else 1])
    _, runtime = runtime_for(next(iter(shapes.values())), device)
    yield f"### {machine_name(device)}, torch {torch.__version__}, {_name(runtime.precision)}\n\n| machine | |\n|---|---|"
    products = {}
    for dtype in (torch.float32, torch.bfloat16):
        _progress(f"matrix products in {_name(dtype)}")
        products[dtype] = product_speed(dtype, device, seconds=seconds)
        yield f"| matrix products, {_name(dtype)} | {three_digits(products[dtype])} GFLOP/s |"
    _progress("copying and reading memory")
    yield f"| copying, read plus written | {three_digits(copy_speed(device, seconds=seconds))} GB/s |"
    yield f"| reading | {three_digits(read_speed(device, seconds=seconds))} GB/s |"
    expected = {name: _least_seconds(size, products[runtime.precision]) for name, size in shapes.items()}
    measured = [name for name in shapes if not on_cpu or expected[name] <= slow_step]
    yield "\n| training | ms a step | characters a second | share of the floor |\n|---|---|---|---|"
    for name in measured:
        yield from _training(name, shapes[name], device, seconds=seconds)
    yield "\n| sampling | texts at once | characters a second | share of the limit |\n|---|---|---|---|"
    for name in measured:
        yield from _sampling(name, shapes[name], device, gflops=products[torch.float32], seconds=seconds)
    for name in (name for name in shapes if name not in measured):
        yield f"\nNot measured: {name}, because the products of a step would take {expected[name]:.0f} seconds."


def _least_seconds(size: Size, gflops: float) -> float:
    """The time of a training step at the speed of the machine's products."""
    return training_flop(size.model, batch_size=size.batch_size, vocab_size=size.vocab_size) / gflops / 1e9


def _training(name: str, size: Size, device: torch.device, *, seconds: float) -> Iterator[str]:
    """The rows of one size: on CUDA, without and with compiling."""
    floor = None
    for compile in ("off", "auto") if device.type == "cuda" else ("off",):
        label = f"{_label(name, size)}{', compiled' * (compile == 'auto')}"
        _progress(f"training, {label}")
        try:
            config, runtime = runtime_for(size, device, compile=compile)
            if runtime.trouble:
                yield f"| {label} | not compiled: {runtime.trouble} | | |"
                continue
            step = training_seconds(size, config, runtime, seconds=2 * seconds)
            shape = {"batch_size": size.batch_size, "vocab_size": size.vocab_size}
            dtype = runtime.precision
            floor = floor or training_floor(size.model, **shape, dtype=dtype, device=device, seconds=seconds / 10)
            yield f"| {label} | {1000 * step:,.1f} | {size.characters / step:,.0f} | {100 * floor.seconds / step:.0f} % |"
        except torch.OutOfMemoryError:
            yield f"| {label} | not enough memory | | |"


def _sampling(name: str, size: Size, device: torch.device, *, gflops: float, seconds: float) -> Iterator[str]:
    """The rows of one size: one text, and several together."""
    model = GPT(size.model, size.vocab_size).to(device).eval()
    for texts in TEXTS:
        _progress(f"sampling, {name}, {texts} at once")
        speed = sampling_speed(model, texts, seconds=seconds)
        shape = {"vocab_size": size.vocab_size, "device": device}
        limit = sampling_floor(size.model, texts, **shape, gflops=gflops, seconds=seconds / 10)
        yield f"| {name}, context {size.model.block_size} | {texts} | {speed:,.0f} | {100 * speed * limit / texts:.0f} % |"


def _label(name: str, size: Size) -> str:
    model = size.model
    return f"{name} ({model.n_layer}/{model.n_head}/{model.n_embd}, {size.batch_size} x {model.block_size})"


def _progress(what: str) -> None:
    print(notice_line("measuring", what), file=sys.stderr, flush=True)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
