"""Recorded and compiled training equal plain training, and keep the rules of CUDA graphs.

The tests of graphs.py, and of what a trainer does on a GPU, inside whole training steps. No GPU is needed: `Recording` repeats
the operations of a step on the CPU as a CUDA graph would. The nightly tests compile steps to machine code.
"""

import copy
import dataclasses
import gc
import itertools
import math
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import model as model_file
from chargpt.config import Config, OptimConfig, TrainConfig
from chargpt.graphs import Graphs
from chargpt.interrupt import Interrupt
from chargpt.model import GPT, POSITIONS, GPTConfig
from chargpt.sampling.sample_writer import SampleWriter
from chargpt.text.tokenizer import Tokenizer
from chargpt.training.evaluation import evaluate
from chargpt.training.optimizers import DOUBLED_AFTER
from chargpt.training.runtime import Runtime, _why_not_compile
from chargpt.training.trainer import NotFinite, Step, Trainer

VOCABULARY = 7
IDS = np.random.default_rng(0).integers(0, VOCABULARY, 2000).astype(np.uint8)
SHAPE = GPTConfig(n_layer=1, n_head=2, n_embd=16, block_size=8, dropout=0.1)
OPTIM = OptimConfig(name="muon", learning_rate=1e-2, warmup_steps=2)
CONFIG = Config(model=SHAPE, train=TrainConfig(max_steps=12, batch_size=4, accumulate=2), optim=OPTIM)


class Recording(TorchDispatchMode):
    """The operations of a block, as a CUDA graph has its kernels: they repeat on the same tensors, and write to the same."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        assert func is not torch.ops.aten._local_scalar_dense.default, "a number is read while recording"
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, result))
        return result

    @torch.no_grad()
    def replay(self) -> None:
        for func, args, kwargs, results in self.calls:
            for result, made in zip(tree_leaves(results), tree_leaves(func(*args, **kwargs))):
                if isinstance(result, Tensor) and result.data_ptr() != made.data_ptr():
                    result.copy_(made)


class RuntimeAsOnGPU(Runtime):
    """A CPU that is used as a GPU: the host does not wait for it."""

    runs_ahead = True


@pytest.fixture
def recorded(monkeypatch) -> Counter[str]:
    """Training records its functions, and runs the records in their place. Counts the records by where they were made."""
    made: Counter[str] = Counter()

    def record(graphs: Graphs, function: Callable[[], object]) -> Callable[[], object]:
        with Recording() as recording:  # which runs it, as CUDA does not
            function()
        made["recorded"] += 1
        calls = iter([lambda: None])

        def run() -> None:
            made["run"] += 1
            next(calls, recording.replay)()

        return run

    monkeypatch.setattr(Graphs, "record", record)
    return made


def as_on_gpu(config: Config, *, precision: torch.dtype = torch.float32, teachers: int = 0) -> Trainer:
    """A trainer on the CPU that records its steps and reads their numbers late."""
    trainer = make_trainer(config, kind=RuntimeAsOnGPU, precision=precision, teachers=teachers)
    trainer._graphs._records = True
    return trainer


@pytest.fixture
def captured() -> Counter[str]:
    """What torch captures, with nothing from earlier tests."""
    from torch._dynamo.utils import counters  # torch itself imports it late

    torch._dynamo.reset()
    counters.clear()
    return counters["stats"]


def make_trainer(
    config: Config = CONFIG,
    *,
    compiled: bool = False,
    precision: torch.dtype = torch.float32,
    teachers: int = 0,
    kind: type[Runtime] = Runtime,
) -> Trainer:
    torch.manual_seed(0)
    runtime = kind(device=torch.device("cpu"), precision=precision, threads=1, compile=compiled)
    models = [GPT(config.model, VOCABULARY) for _ in range(1 + teachers)]
    return Trainer(models[0], IDS, config, runtime=runtime, teachers=models[1:])


def run(trainer: Trainer) -> list[Step]:
    """The steps of a run with what happens between them: rehearsals, evaluations, samples, a state that is loaded again."""
    steps: list[Step] = []
    tokenizer = Tokenizer("".join(chr(65 + token_id) for token_id in range(VOCABULARY)))
    writer = SampleWriter(tokenizer, trainer.config.model, device=trainer.runtime.device, length=3, seed=1)
    while not trainer.is_finished:
        if trainer.progress.step in (0, 7):
            evaluate(trainer.weights.working, IDS[:100])
            writer.write(trainer.model, Interrupt())
        if trainer.progress.step == 7:
            trainer.load(copy.deepcopy(trainer.state()))
        steps.append(trainer.step())
    return steps


def assert_same(expected: list[Step], found: list[Step], *weights: Tensor) -> None:
    """Equal but for the rounding of the clipping and the update, which are in another order on a GPU."""
    for one, other in zip(expected, found, strict=True):
        assert tuple(other) == pytest.approx(tuple(one), rel=1e-3)
    torch.testing.assert_close(*weights, rtol=1e-2, atol=2e-3)


CASES = [("sinusoidal", "muon", 0), ("rotary", "adamw", 1)]  # positions, optimizer, teachers
OTHERS = [case for case in itertools.product(POSITIONS, ("adamw", "muon"), (0, 2)) if case not in CASES]


@pytest.mark.parametrize(
    "positions, name, teachers", [*CASES, *(pytest.param(*case, marks=pytest.mark.nightly) for case in OTHERS)]
)
def test_recorded_steps_are_those_of_a_cpu(recorded, monkeypatch, positions, name, teachers):
    """Twelve steps with dropout, clipping, accumulation, evaluations, a sample and a state that is loaded again."""
    monkeypatch.setattr(model_file, "TABLE_NUMBERS", 32)  # so that the table of positions grows after the model is built
    config = dataclasses.replace(
        CONFIG,
        model=dataclasses.replace(SHAPE, positions=positions, bias=positions == "rotary"),
        optim=dataclasses.replace(OPTIM, name=name, grad_clip=0.3),
    )
    plain, late = make_trainer(config, teachers=teachers), as_on_gpu(config, teachers=teachers)
    steps = run(plain), run(late)
    assert_same(*steps, plain.weights.vector, late.weights.vector)
    assert recorded["recorded"] == 3 and recorded["run"] > 3 * 9  # a first and a further micro-batch, and the update
    assert late.progress.loss_sum == pytest.approx(plain.progress.loss_sum, rel=1e-4)
    assert late.progress.loss_count == plain.progress.loss_count


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_step_that_is_not_finite_changes_nothing_and_is_named_when_it_is_read(recorded, name):
    optim = dataclasses.replace(OPTIM, name=name, start_decay=0.1)
    trainer = as_on_gpu(dataclasses.replace(CONFIG, optim=optim))
    for _ in range(5):
        trainer.advance()
    trainer.report()
    before = [tensor.clone() for tensor in (trainer.weights.vector, *trainer.optimizer.vectors())]
    embedding = trainer.weights.working.token_embedding.weight
    kept = embedding.detach().clone()
    embedding.data.fill_(math.nan)
    trainer.advance()
    after = [tensor.clone() for tensor in (trainer.weights.vector, *trainer.optimizer.vectors())]
    embedding.data.copy_(kept)
    after[0][trainer.weights.spans["token_embedding.weight"]] = kept.flatten()  # it is the vector that was changed
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    trainer.advance()
    with pytest.raises(NotFinite, match="step 6: loss nan"):
        trainer.check_weights()


def test_steps_that_nobody_has_read_are_forgotten_with_a_return_to_an_earlier_state(recorded):
    trainer = as_on_gpu(CONFIG)
    trainer.advance()
    saved = copy.deepcopy(trainer.state())
    trainer.advance()
    trainer.load(saved)
    assert trainer.report() == trainer._last and trainer.progress == saved.progress


def test_what_overflows_in_float16_is_skipped_and_halves_the_scale(recorded):
    trainer = as_on_gpu(dataclasses.replace(CONFIG, optim=OPTIM), precision=torch.float16)
    scaling = trainer.optimizer.scaling
    unscaled = as_on_gpu(dataclasses.replace(CONFIG, optim=OPTIM), precision=torch.float16)
    unscaled.optimizer.scaling[0] = 1.0
    trainer.advance()
    unscaled.advance()
    torch.testing.assert_close(trainer.weights.gradient, unscaled.weights.gradient, rtol=1e-2, atol=1e-4)
    scaling[0] = 2.0**40  # more than a gradient in float16 can hold
    before = trainer.weights.vector.clone()
    trainer.advance()
    assert torch.equal(before, trainer.weights.vector) and scaling.tolist() == [2.0**16, 0.0]
    for _ in range(3):
        trainer.advance()
    assert trainer.report().grad_norm > 0 and trainer.progress.loss_count == 5
    assert not torch.equal(before, trainer.weights.vector) and scaling[1] == 3
    scaling[1] = DOUBLED_AFTER - 1
    scaling[0] = 8.0
    trainer.advance()
    assert scaling.tolist() == [16.0, 0.0]
    resumed = as_on_gpu(dataclasses.replace(CONFIG, optim=OPTIM), precision=torch.float16)
    resumed.load(copy.deepcopy(trainer.state()))
    assert resumed.optimizer.scaling.tolist() == [16.0, 0.0]
    other = make_trainer(dataclasses.replace(CONFIG, optim=OPTIM))
    other.load(copy.deepcopy(trainer.state()))  # a checkpoint of another precision
    resumed.load(copy.deepcopy(other.state()))


def test_without_memory_fewer_rows_are_computed_at_once_for_the_same_step(recorded, monkeypatch):
    config = dataclasses.replace(CONFIG, model=dataclasses.replace(SHAPE, dropout=0.0))
    plain, late = make_trainer(config), as_on_gpu(config)
    original = Trainer._add_gradient_of

    def fails(trainer: Trainer, fetched: Tensor, **options: Any) -> None:
        if trainer is late and len(fetched) > 1:
            raise torch.OutOfMemoryError
        original(trainer, fetched, **options)

    monkeypatch.setattr(Trainer, "_add_gradient_of", fails)
    steps = [plain.step() for _ in range(5)], [late.step() for _ in range(5)]
    assert_same(*steps, plain.weights.vector, late.weights.vector)
    assert [str(told.text) for told in late.notices] == [
        "too little for 4 sequences at once, so steps now compute 2 at a time",
        "too little for 2 sequences at once, so steps now compute 1 at a time",
    ]
    late.rows = slice(0, 1)
    late._parts = 1
    monkeypatch.setattr(Trainer, "_add_gradient_of", lambda *args, **options: torch.empty(10**18))
    with pytest.raises(RuntimeError):
        late.advance()


def test_a_training_that_is_over_leaves_no_graph(recorded):
    """At once, without the collector of cycles: the next model needs the memory."""
    trainer = as_on_gpu(CONFIG)
    for _ in range(4):
        trainer.advance()
    over = weakref.ref(trainer._graphs)
    gc.disable()
    try:
        del trainer
        assert over() is None
    finally:
        gc.enable()


def test_the_blocks_of_a_model_are_one_graph_that_is_compiled_once(captured, monkeypatch):
    """Those of a teacher are another one. Evaluations and samples between the steps are not compiled."""
    compiled = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model, **options: compiled(model, backend="eager", **options))
    config = dataclasses.replace(CONFIG, model=dataclasses.replace(SHAPE, n_layer=3))
    eager, found = (make_trainer(config, compiled=choice, teachers=2) for choice in (False, True))
    assert run(eager) == run(found)
    assert torch.equal(eager.weights.vector, found.weights.vector)
    assert captured["unique_graphs"] == 2


@pytest.fixture(scope="module")
def machine_code() -> None:
    """The test compiles to machine code, as training on a GPU does; it skips where torch cannot."""
    if trouble := _why_not_compile(torch.device("cpu")):
        pytest.skip(f"torch cannot compile here: {trouble}")


@pytest.mark.nightly
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("name", ["adamw", "muon"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_steps_in_machine_code_are_the_eager_ones(machine_code, captured, positions, name, dropout):
    """Twelve steps, with the random numbers of eager dropout; sums are ordered in another way, so equal to rounding."""
    # Without rotary positions, the gradient of a key's bias is 0 but for rounding, which AdamW scales up to whole steps.
    shape = dataclasses.replace(SHAPE, n_layer=2, positions=positions, dropout=dropout, bias=positions == "rotary")
    config = dataclasses.replace(CONFIG, model=shape, optim=dataclasses.replace(OPTIM, name=name))
    eager, compiled = make_trainer(config, compiled=False), make_trainer(config, compiled=True)
    with torch._inductor.config.patch(fallback_random=True):
        steps = run(compiled)
    for expected, found in zip(run(eager), steps, strict=True):
        assert found == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(compiled.weights.vector, eager.weights.vector, rtol=1e-3, atol=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_an_update_in_machine_code_is_the_eager_one(machine_code, captured, name):
    """As a GPU makes it, which decides nothing by the numbers."""
    config = dataclasses.replace(CONFIG, optim=dataclasses.replace(OPTIM, name=name))
    eager, compiled = (make_trainer(config, kind=RuntimeAsOnGPU) for _ in range(2))
    compiled._run_update = torch.compile(compiled._run_update, dynamic=False)  # not its blocks, which takes longer
    for expected, found in zip(run(eager), run(compiled), strict=True):
        assert found == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(compiled.weights.vector, eager.weights.vector, rtol=1e-3, atol=1e-4)
