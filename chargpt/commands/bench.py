"""`python -m chargpt bench`: what this machine can do, and how close training and sampling come to it.

The tables on standard output are Markdown, and are the same on every device.
"""

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from chargpt.commands.frame import run_verb, verb_parser
from chargpt.interrupt import ending_at_once
from chargpt.terminal import LABEL, log

if TYPE_CHECKING:  # imports torch, and --help shall be quick
    import torch

    from chargpt.analysis.speed import Size

SLOW_STEP = 5.0  # seconds; on a CPU, larger models are left out
TEXTS = (1, 32)  # sampled at once
# Layers, heads, width, context, and the windows of a batch on a CPU and on a GPU.
SIZES = {
    "0.8M": (4, 4, 128, 64, 12, 256),
    "3.2M": (4, 4, 256, 128, 16, 128),
    "10.65M": (6, 6, 384, 256, 8, 64),
    "85M": (12, 12, 768, 256, 4, 64),
}


def main(argv: Sequence[str]) -> int:
    """Measure the machine, and print the tables. Returns the exit code. Raises UserError."""
    parser = verb_parser(
        "bench",
        "[--device D]",
        "Measure this machine: matrix products, memory, training steps and sampling at four sizes, and how close "
        "they come to the limits of the machine. This takes one to three minutes. The tables on standard output are Markdown, "
        "for docs/lab/speed.md.",
    )
    parser.add_argument("--device", metavar="D", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    return run_verb(parser.parse_intermixed_args, argv, print_tables)


def print_tables(options: Namespace) -> None:
    """Measure, and print the tables as they are measured."""
    with ending_at_once():  # there is nothing to save
        from chargpt.config import RuntimeConfig
        from chargpt.device import choose_device

        for line in tables(choose_device(RuntimeConfig(device=options.device).device), SIZES):
            print(line, flush=True)


def tables(
    device: "torch.device", sizes: Mapping[str, tuple[int, ...]], *, seconds: float = 1.0, slow_step: float = SLOW_STEP
) -> Iterator[str]:
    """The lines, as they are measured. Each measurement takes about `seconds`, or twice that; what it is goes to stderr."""
    import torch

    from chargpt.analysis import speed
    from chargpt.config import ModelConfig

    on_cpu = device.type == "cpu"
    shapes = {}
    for name, (layers, heads, width, context, *batches) in sizes.items():
        model = ModelConfig(n_layer=layers, n_head=heads, n_embd=width, block_size=context)
        shapes[name] = speed.Size(model=model, batch_size=batches[0 if on_cpu else 1])
    _, runtime = speed.runtime_for(next(iter(shapes.values())), device)
    yield f"### {speed.machine_name(device)}, torch {torch.__version__}, {_name(runtime.precision)}\n\n| machine | |\n|---|---|"
    products = {}
    for dtype in (torch.float32, torch.bfloat16):
        _progress(f"matrix products in {_name(dtype)}")
        products[dtype] = speed.product_speed(dtype, device, seconds=seconds)
        yield f"| matrix products, {_name(dtype)} | {speed.three_digits(products[dtype])} GFLOP/s |"
    _progress("copying and reading memory")
    yield f"| copying, read plus written | {speed.three_digits(speed.copy_speed(device, seconds=seconds))} GB/s |"
    yield f"| reading | {speed.three_digits(speed.read_speed(device, seconds=seconds))} GB/s |"
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


def _least_seconds(size: "Size", gflops: float) -> float:
    """The time of a training step at the speed of the machine's products."""
    from chargpt.analysis import speed

    return speed.training_flop(size.model, batch_size=size.batch_size, vocab_size=size.vocab_size) / gflops / 1e9


def _training(name: str, size: "Size", device: "torch.device", *, seconds: float) -> Iterator[str]:
    """The rows of one size: on CUDA, without and with compiling."""
    import torch

    from chargpt.analysis import speed

    floor = None
    for mode in ("off", "auto") if device.type == "cuda" else ("off",):
        label = f"{_label(name, size)}{', compiled' * (mode == 'auto')}"
        _progress(f"training, {label}")
        try:
            config, runtime = speed.runtime_for(size, device, mode=mode)
            if runtime.trouble:
                yield f"| {label} | not compiled: {runtime.trouble} | | |"
                continue
            step = speed.training_seconds(size, config, runtime, seconds=2 * seconds)
            floor = floor or speed.training_floor(
                size.model,
                batch_size=size.batch_size,
                vocab_size=size.vocab_size,
                dtype=runtime.precision,
                device=device,
                seconds=seconds / 10,
            )
            yield f"| {label} | {1000 * step:,.1f} | {size.characters / step:,.0f} | {100 * floor.seconds / step:.0f} % |"
        except torch.OutOfMemoryError:
            yield f"| {label} | not enough memory | | |"


def _sampling(name: str, size: "Size", device: "torch.device", *, gflops: float, seconds: float) -> Iterator[str]:
    """The rows of one size: one text, and several together."""
    from chargpt.analysis import speed
    from chargpt.model import GPT
    from chargpt.runs.blank_model import gpt_config

    model = GPT(gpt_config(size.model), size.vocab_size).to(device).eval()
    for texts in TEXTS:
        _progress(f"sampling, {name}, {texts} at once")
        rate = speed.sampling_speed(model, texts, seconds=seconds)
        limit = speed.sampling_floor(
            size.model, texts, vocab_size=size.vocab_size, device=device, gflops=gflops, seconds=seconds / 10
        )
        yield f"| {name}, context {size.model.block_size} | {texts} | {rate:,.0f} | {100 * rate * limit / texts:.0f} % |"


def _label(name: str, size: "Size") -> str:
    model = size.model
    return f"{name} ({model.n_layer}/{model.n_head}/{model.n_embd}, {size.batch_size} x {model.block_size})"


def _progress(what: str) -> None:
    log(f"{'measuring':<{LABEL}}{what}")


def _name(dtype: "torch.dtype") -> str:
    return str(dtype).removeprefix("torch.")
