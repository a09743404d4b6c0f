"""Calls every function of the kernels with sizes that fit and with sizes that do not, through the Python side.

    python tests/fuzz_shapes.py COUNT [FLAG ...]     with libraries that are compiled with these flags of the compiler

What does not fit must be refused with ValueError before C is called: C looks at no shape. Prints how many calls were made, and
how many were refused.
"""

import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from chargpt.config import OptimConfig
from chargpt.kernels import compiler
from chargpt.kernels.attention import FusedAttention, load_kernel
from chargpt.kernels.step import KernelModel, KernelMuon, StepKernel
from chargpt.model import GPT, GPTConfig
from chargpt.sampling import c_texts
from chargpt.training.weights import FlatWeights


def some_shape(draw: random.Random) -> dict[str, object]:
    heads = draw.choice([1, 2, 3])
    width = draw.choice([32, 64, 96, 24, 36]) * (heads if draw.random() < 0.3 else 1)
    width -= width % heads
    positions = draw.choice(["learned", "sinusoidal", "rotary"]) if width // heads % 2 == 0 else "learned"
    sizes = {"n_layer": draw.choice([1, 2]), "n_head": heads, "n_embd": width, "block_size": draw.choice([1, 7, 16])}
    return {**sizes, "positions": positions, "bias": draw.random() < 0.5}


def some_model(draw: random.Random) -> GPT:
    """A model whose weights are sometimes not those of its config, as those of a changed model.py are."""
    gpt = GPT(GPTConfig(**some_shape(draw)), draw.choice([2, 5, 33])).eval()
    mlp, C = next(iter(gpt.blocks)).mlp, gpt.config.n_embd
    change = draw.choice(["", "", "width", "gain", "missing", "fewer", "longer", "vocabulary"])
    if change == "width":
        mlp.up, mlp.down = torch.nn.Linear(C, 2 * C, bias=gpt.config.bias), torch.nn.Linear(2 * C, C, bias=gpt.config.bias)
    elif change == "gain":
        mlp.gain = torch.nn.Parameter(torch.ones(3))
    elif change == "missing":
        del gpt.norm
    elif change == "fewer":
        gpt.blocks = gpt.blocks[:-1]
    elif change == "longer":
        gpt.config = replace(gpt.config, block_size=gpt.config.block_size + 9)
    elif change == "vocabulary":
        gpt.vocab_size += 3
    return gpt


def calls(draw: random.Random, step: StepKernel, decode: object) -> Iterator[Callable[[], object]]:
    """One call of each function."""
    gpt = some_model(draw)
    B, T = draw.choice([0, 1, 3]), draw.choice([0, 1, gpt.config.block_size, gpt.config.block_size + 1])
    idx = torch.randint(2, (B, T), dtype=draw.choice([torch.int64, torch.int64, torch.int32]))
    targets = torch.randint(2, (B, T + draw.choice([0, 0, 1])))
    expected = draw.choice([None, None, torch.rand(B, T, gpt.vocab_size), torch.rand(B, T, gpt.vocab_size + 1)])

    def gradient() -> object:
        weights = FlatWeights(gpt, torch.float32, step=step)
        return weights.by_kernel().add_gradient(idx, targets, scale=1.0, seed=1, begins=True, expected=expected)

    yield gradient
    yield lambda: KernelModel.of(step, gpt).logits(idx)
    width = draw.choice([96, 192, 100, 60, 0])
    qkv, table = torch.rand(max(1, B), max(1, T), width), draw.choice([None, torch.rand(2, max(1, T), 4), torch.rand(2, 1, 16)])
    yield lambda: FusedAttention(torch.float32, step.library)(qkv, draw.choice([1, 2, 3]), table)
    stack = draw.choice([(slice(0, 2048), 32, 64), (slice(32, 4128), 64, 32), (slice(0, 1056), 33, 32), (slice(9, 9), 32, 32)])
    vectors = [
        torch.rand(4128 - draw.choice([0, 0, 0, 1]), dtype=draw.choice([torch.float32] * 9 + [torch.float64])) for _ in "gmw"
    ]
    yield lambda: KernelMuon(step, OptimConfig(), [(3.0, -4.0, 2.0)], [stack], *vectors).update(0.1)
    named = {name: parameter.detach().numpy() for name, parameter in gpt.named_parameters()}
    if draw.random() < 0.2:
        named = {name: numbers.astype(np.float64) for name, numbers in named.items()}

    def write() -> object:
        writer = c_texts.c_writer(named, gpt.config, kernel=decode, precision=draw.choice(c_texts.PRECISIONS))
        return writer.new_texts(2).read(0, np.zeros((2, gpt.config.block_size), np.int64))

    yield write


def fuzz(count: int, *, step: StepKernel, decode: object, seed: int = 0) -> SimpleNamespace:
    """What was refused, and what was computed, in so many rounds."""
    found = SimpleNamespace(made=0, refused=0, wrong=[])
    torch.manual_seed(seed)
    for i in range(count):
        for call in calls(random.Random(1000 * seed + i), step, decode):
            found.made += 1
            try:
                result = call()
            except (ValueError, AssertionError) as problem:
                found.refused += 1
                if isinstance(problem, AssertionError):
                    found.wrong.append(repr(problem))
            else:
                numbers = torch.as_tensor(result if result is not None else 0.0)
                if not numbers.isfinite().all():
                    found.wrong.append("not finite")
    return found


def main() -> None:
    flags, cache = tuple(sys.argv[2:]), Path(tempfile.mkdtemp())
    own = [replace(source, flags=(*source.flags, *flags)) for source in (compiler.STEP_FLOAT32, compiler.DECODE)]
    c_texts.DECODE = own[1]
    found = fuzz(
        int(sys.argv[1]), step=StepKernel(torch.float32, load_kernel(own[0], cache)), decode=c_texts.load_kernel(cache)
    )
    print(found.made, found.refused, *found.wrong)


if __name__ == "__main__":
    main()
