"""What the tests run on the null GPU, each call in a process of its own: python programs.py FUNCTION ARGUMENT ...

It prints what the function returns, as JSON.
"""

import itertools
import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from gpu import null_gpu  # noqa: E402

from chargpt.config import Config  # noqa: E402
from chargpt.device import memory_free  # noqa: E402
from chargpt.model import GPT, POSITIONS, GPTConfig  # noqa: E402
from chargpt.planning.cli import TrainOptions, settings_in  # noqa: E402
from chargpt.planning.initial_settings import load_settings  # noqa: E402
from chargpt.planning.memory import memory_needed  # noqa: E402
from chargpt.sampling.options import SamplingOptions  # noqa: E402
from chargpt.sampling.torch_texts import AT_ONCE, torch_writer  # noqa: E402
from chargpt.sampling.writer import NewIds  # noqa: E402
from chargpt.text.item_stream import ItemMarks  # noqa: E402
from chargpt.training.initialisation import initial_model  # noqa: E402
from chargpt.training.runtime import choose_runtime  # noqa: E402
from chargpt.training.trainer import Trainer  # noqa: E402

Counts = dict[str, int]  # of the calls of the driver, by kind
VOCABULARY = 65
IDS = np.random.default_rng(0).integers(1, VOCABULARY, 50_000).astype(np.uint8)
STEPS = 8
KINDS = {
    "accumulated": ["train.accumulate=3"],
    "float32": ["runtime.precision=float32"],
    "tf32": ["runtime.precision=tf32"],
    "float16": ["runtime.precision=float16"],
    "dropout": ["model.dropout=0.2"],
    "deterministic": ["runtime.deterministic=true"],
}
# What --minutes 3 makes of a million characters, on an H200.
MINUTES = ["model.n_layer=6", "model.n_embd=256", "model.n_head=8", "model.block_size=256", "train.batch_size=16"]
MINUTES += ["optim.name=muon", "model.positions=rotary", "model.bias=true"]
for optimizer, positions in itertools.product(("adamw", "muon"), POSITIONS):
    KINDS[f"{optimizer} {positions}"] = [f"optim.name={optimizer}", f"model.positions={positions}"]


def config_of(*settings: str) -> Config:
    words = ["model.n_layer=2", "model.n_embd=64", "model.n_head=2", "model.block_size=32", "train.batch_size=4", *settings]
    options = TrainOptions(config="gpu", settings=settings_in(["runtime.device=cuda", *words]))
    return load_settings(options, presets=ROOT / "configs").loaded.values


def trainer_of(
    config: Config, *, ids: np.ndarray = IDS, teachers: int = 0, is_resident: bool = True, marks: ItemMarks | None = None
) -> Trainer:
    runtime, model = choose_runtime(config), partial(initial_model, config.model, VOCABULARY)
    if not is_resident:
        object.__setattr__(runtime, "has_memory_for", lambda ids: False)
    with runtime.applied():
        before = [model().to(runtime.device).eval() for _ in range(teachers)]
        return Trainer(model(), ids, config, runtime=runtime, teachers=before, marks=marks)


def counts(
    config: Config, *, ids: np.ndarray = IDS, teachers: int = 0, is_resident: bool = True, marks: ItemMarks | None = None
) -> tuple[Counts, Counts]:
    """What STEPS steps ask of the GPU, after the first ones, which record graphs, and what an evaluation asks.

    The state is then saved and loaded, and another step is taken.
    """
    trainer = trainer_of(config, ids=ids, teachers=teachers, is_resident=is_resident, marks=marks)
    with trainer.runtime.applied():
        for _ in range(3):
            trainer.advance()
        trainer.report()
        recorded = null_gpu.read()
        for _ in range(STEPS):
            trainer.advance()
        found = null_gpu.read()
        trainer.report()
        null_gpu.read()
        trainer.evaluate(ids, marks=marks, interrupt=None)
        evaluation = null_gpu.read()
        trainer.load(trainer.state())
        trainer.step()
    assert recorded["recorded"] > 50 and "forbidden" not in recorded, recorded
    assert not trainer.notices, trainer.notices
    return found, evaluation


def steps() -> dict[str, tuple[Counts, Counts]]:
    """Of each kind of training."""
    found = {name: counts(config_of(*settings)) for name, settings in KINDS.items()}
    found["teachers"] = counts(config_of(), teachers=2)
    found["text of the host"] = counts(config_of(), is_resident=False)
    found["items"] = counts(config_of(), ids=IDS % 12, marks=ItemMarks(end=1, tab=None))
    return found


def compiled() -> tuple[Counts, Counts]:
    """The size of the preset gpu."""
    return counts(config_of("model.n_layer=6", "model.n_embd=384", "model.n_head=6", "runtime.compile=on"))


def nodes() -> dict[str, int]:
    """The kernels, fills and copies in the graphs of a step and of a character, of the models that --minutes 3 makes."""
    found = dict[str, int]()
    for name, teachers, dropout in (("step", 0, 0.1), ("step with three teachers", 3, 0.0)):
        trainer = trainer_of(config_of(*MINUTES, f"model.dropout={dropout}"), teachers=teachers)
        with trainer.runtime.applied():
            for _ in range(3):
                trainer.advance()
        trainer.report()
        found[name] = null_gpu.read()["recorded"]
    for positions in ("rotary", "learned"):
        shape = GPTConfig(n_layer=6, n_head=8, n_embd=256, block_size=256, positions=positions, bias=positions == "rotary")
        writer = torch_writer(GPT(shape, VOCABULARY).to("cuda").eval())
        for _ in writer.pieces([[1, 2]], AT_ONCE, SamplingOptions(), seeds=[1]):
            found[f"character, {positions}"] = null_gpu.read()["recorded"]
    return found


def memory() -> dict[str, float]:
    """How many times the memory that is told is what is allocated for steps, of the preset gpu and of models of --minutes."""
    deep = ["model.n_layer=12", "model.n_embd=768", "model.n_head=12", "model.block_size=256", "train.batch_size=64"]
    preset = ["model.n_layer=6", "model.n_embd=384", "model.n_head=6", "model.block_size=256", "train.batch_size=64"]
    kinds = {"gpu": preset, "gpu in float32": [*preset, "runtime.precision=float32"], "4.7M": MINUTES, "85M": deep}
    kinds["85M with Muon"] = [*deep, *MINUTES[-3:]]
    found = dict[str, float]()
    for name, words in kinds.items():
        torch.cuda.reset_peak_memory_stats()
        trainer = trainer_of(config := config_of(*words, "model.dropout=0.1"))
        with trainer.runtime.applied():
            for _ in range(4):
                trainer.advance()
        of_run = {"device": "cuda", "precision": trainer.runtime.precision}
        told = memory_needed(config, vocab_size=VOCABULARY, **of_run)
        found[name] = told / torch.cuda.max_memory_allocated()
        trainer.release()
    return found


def at_once(megabytes: str) -> tuple[int, int]:
    """How many texts are written at once by a model on a GPU with so much free memory, and how many bytes they then take."""
    model = GPT(GPTConfig(n_layer=6, n_head=6, n_embd=384, block_size=256), VOCABULARY).to("cuda").eval()
    taken = torch.empty(memory_free(torch.device("cuda")) - (int(megabytes) << 20), dtype=torch.uint8, device="cuda")
    writer, before = torch_writer(model), torch.cuda.memory_allocated()
    for _ in writer.pieces([[1]] * writer.at_once, 250, SamplingOptions(), seeds=range(writer.at_once)):
        pass
    assert taken.numel()
    return writer.at_once, torch.cuda.max_memory_allocated() - before


def characters() -> list[tuple[str, int, dict[str, int]]]:
    """What some characters ask of the GPU, after the first ones, and how many they are."""
    found = []
    rules = ({}, {"temperature": 0}, {"top_k": 5, "top_p": 0.9, "min_p": 0.02})
    for positions, options, texts in itertools.product(POSITIONS, rules, (1, 3)):
        model = GPT(GPTConfig(n_layer=2, n_head=2, n_embd=64, block_size=256, positions=positions), VOCABULARY)
        writer = torch_writer(model.to("cuda").eval())
        pieces: Iterator[NewIds] = writer.pieces([[1, 2]] * texts, 3 * AT_ONCE, SamplingOptions(**options), seeds=range(texts))
        next(pieces)
        assert "forbidden" not in null_gpu.read()
        written = sum(len(piece.ids) for piece in pieces)
        found.append((f"{positions} {options} {texts}", written, null_gpu.read()))
    return found


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
