"""How long a step and a character take on a GPU, and of how many kernels they consist.

    python tests/benchmarks/gpu_steps.py [WORD] [SETTING ...]                       # on a card: milliseconds
    python tests/gpu/null_gpu.py tests/benchmarks/gpu_steps.py [WORD] [SETTING ...]  # without one: kernels, fills, copies

Only shapes whose name has the WORD are counted or timed; "" is in every name. `runtime.compile=on` compiles, and
`runtime.attention=plain` has model.py compute everything. On a card, each time is that of the fastest of five rounds.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from gpu import null_gpu  # noqa: E402
from gpu.programs import MINUTES, VOCABULARY, config_of, trainer_of  # noqa: E402

from chargpt.model import GPT, GPTConfig  # noqa: E402
from chargpt.sampling.options import SamplingOptions  # noqa: E402
from chargpt.sampling.torch_texts import AT_ONCE, torch_writer  # noqa: E402

ROUNDS, STEPS, CHARACTERS = 5, 20, 192
MUON = ["optim.name=muon", "model.positions=rotary"]


def shape(layers: int, width: int, heads: int, context: int, windows: int, *more: str) -> list[str]:
    sizes = {"model.n_layer": layers, "model.n_embd": width, "model.n_head": heads}
    return [f"{name}={size}" for name, size in (sizes | {"model.block_size": context, "train.batch_size": windows}).items()] + [
        *more
    ]


# name -> how many teachers, and the settings
SHAPES: dict[str, tuple[int, list[str]]] = {
    "4.7M (6/8/256, 16 x 256), Muon, dropout": (0, [*MINUTES, "model.dropout=0.1"]),
    "4.7M (6/8/256, 16 x 256), Muon, three teachers": (3, [*MINUTES, "model.dropout=0"]),
    "0.8M (4/4/128, 256 x 64), AdamW": (0, shape(4, 128, 4, 64, 256)),
    "0.8M (4/4/128, 256 x 64), Muon": (0, shape(4, 128, 4, 64, 256, *MUON)),
    "10.65M (6/6/384, 64 x 256), AdamW, dropout": (0, shape(6, 384, 6, 256, 64, "model.dropout=0.2")),
    "85M (12/12/768, 64 x 256), Muon": (0, shape(12, 768, 12, 256, 64, *MUON)),
}


def fastest(function: Callable[[], object]) -> float:
    """The seconds of the fastest round."""
    seconds = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        function()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def steps(name: str, teachers: int, settings: list[str], *, is_null: bool) -> str:
    trainer = trainer_of(config := config_of(*settings), teachers=teachers)
    with trainer.runtime.applied():
        for _ in range(3):  # the third one records
            trainer.advance()
        trainer.report()
        if is_null:
            recorded = null_gpu.read()["recorded"]
            trainer._graphs.record(partial(trainer._run_update, trainer))
            update = null_gpu.read()["recorded"]
            found = f"{recorded} kernels ({recorded - update} for the gradient, {update} for the update)"
        else:
            took = fastest(lambda: [trainer.advance() for _ in range(STEPS)]) / STEPS
            found = f"{1000 * took:.3f} ms a step, {config.chars_per_step / took:,.0f} characters a second"
        trainer.report()
    trainer.release()
    return f"{name}: {found}"


def characters(positions: str, texts: int, *, is_null: bool) -> str:
    config = GPTConfig(n_layer=6, n_head=8, n_embd=256, block_size=256, positions=positions, bias=positions == "rotary")
    writer = torch_writer(GPT(config, VOCABULARY).to("cuda").eval())
    pieces = partial(writer.pieces, [[1]] * texts, CHARACTERS, SamplingOptions(), seeds=range(texts))
    next(pieces())
    if is_null:
        found = f"{null_gpu.read()['recorded']} kernels"
    else:
        # Each call records the graph of a character, as each call of sample.py does, so that its beginning is not counted.
        def rest() -> float:
            made = pieces()
            next(made)
            torch.cuda.synchronize()
            started = time.perf_counter()
            for _ in made:
                pass
            return (CHARACTERS - AT_ONCE) * texts / (time.perf_counter() - started)

        found = f"{max(rest() for _ in range(ROUNDS)):,.0f} characters a second"
    return f"a character of 4.7M, {positions} positions, {texts} texts: {found}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("word", nargs="?", default="", metavar="WORD")
    parser.add_argument("settings", nargs="*", metavar="SETTING")
    options = parser.parse_args()
    is_null = torch.cuda.get_device_name() == "Null GPU"
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for name, (teachers, settings) in SHAPES.items():
        if options.word in name:
            print(steps(name, teachers, [*settings, *options.settings], is_null=is_null), flush=True)
    for positions, texts in itertools.product(("rotary", "learned"), (1, 64) if not is_null else (1,)):
        if options.word in "a character":
            print(characters(positions, texts, is_null=is_null), flush=True)


if __name__ == "__main__":
    main()
