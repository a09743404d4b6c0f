"""Compiled training equals eager training, and keeps the rules of CUDA graphs, which `reduce-overhead` uses on a GPU.

This file has no module of its own: it tests what `Runtime.compiled` compiles, inside whole training steps. No GPU is needed.
In the default tests, torch captures the graphs of a step, and `Replay` runs them on the CPU as CUDA graphs would. The nightly
tests compile them to machine code.
"""

import copy
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, fx

import model as model_file
from chargpt.config import Config, OptimConfig, TrainConfig
from chargpt.interrupt import Interrupt
from chargpt.model import GPT, POSITIONS, GPTConfig
from chargpt.planning.time_model import step_parts
from chargpt.sampling.sample_writer import SampleWriter
from chargpt.text.tokenizer import Tokenizer
from chargpt.training.evaluation import evaluate
from chargpt.training.runtime import Runtime, _why_not_compile
from chargpt.training.trainer import Step, Trainer

VOCABULARY = 7
IDS = np.random.default_rng(0).integers(0, VOCABULARY, 2000).astype(np.uint8)
SHAPE = GPTConfig(n_layer=1, n_head=2, n_embd=16, block_size=8, dropout=0.1)
OPTIM = OptimConfig(name="muon", learning_rate=1e-2, warmup_steps=2)
CONFIG = Config(model=SHAPE, train=TrainConfig(max_steps=12, batch_size=4, accumulate=2), optim=OPTIM)


class Replay:
    """A backend of torch.compile with the rules of CUDA graphs: fixed addresses, and results that the next call overwrites.

    A CUDA graph reads its weights where they were when it was recorded, and writes its results to the same memory every time.
    """

    def __init__(self) -> None:
        self.graphs: list[fx.GraphModule] = []
        self.calls = 0

    def __call__(self, graph: fx.GraphModule, inputs: list[Tensor]) -> Callable:
        from torch._dynamo.backends.common import aot_autograd

        forward, backward = functools.partial(self.record, is_forward=True), functools.partial(self.record, is_forward=False)
        return aot_autograd(fw_compiler=forward, bw_compiler=backward)(graph, inputs)

    def record(self, graph: fx.GraphModule, inputs: list[Tensor], *, is_forward: bool) -> Callable:
        from functorch.compile import make_boxed_func

        self.graphs.append(graph)
        results: list[Tensor] = []
        addresses: list[int] = []

        def replay(*given: Any) -> list[Any]:
            self.calls += 1
            if is_forward:  # its only other inputs are ids
                found = [tensor.data_ptr() for tensor in given if tensor.is_floating_point()]
                addresses[:] = addresses or found
                assert found == addresses, "weights have moved"
            made = graph(*given)
            if not results:
                results.extend(torch.empty_like(tensor) if isinstance(tensor, Tensor) else tensor for tensor in made)
            for result, tensor in zip(results, made):
                if isinstance(tensor, Tensor):
                    result.copy_(tensor)
            return [result.detach() if isinstance(result, Tensor) else result for result in results]

        return make_boxed_func(replay)


@pytest.fixture
def captured_once() -> Iterator[None]:
    """Nothing is captured from earlier tests, and a second capture of the same function is an error."""
    import torch._dynamo.config  # torch itself imports it late

    torch._dynamo.reset()
    with torch._dynamo.config.patch(error_on_recompile=True):
        yield


@pytest.fixture
def replay(monkeypatch, captured_once) -> Replay:
    """What torch.compile uses in the test, with the other options that `Runtime.compiled` gives."""
    backend, original = Replay(), torch.compile

    def compiled(model: GPT, *, mode: str, **options: Any) -> Callable:
        assert mode == "reduce-overhead" and options["fullgraph"]
        return original(model, backend=backend, **options)

    monkeypatch.setattr(torch, "compile", compiled)
    return backend


def make_trainer(
    config: Config = CONFIG, *, compiled: bool, precision: torch.dtype = torch.float32, teachers: int = 0
) -> Trainer:
    torch.manual_seed(0)
    runtime = Runtime(device=torch.device("cpu"), precision=precision, threads=1, compile=compiled)
    models = [GPT(config.model, VOCABULARY) for _ in range(1 + teachers)]
    return Trainer(models[0], IDS, config, runtime=runtime, teachers=models[1:])


def run(trainer: Trainer) -> list[Step]:
    """The steps of a run with what happens between them: rehearsals, evaluations, samples, a state that is loaded again."""
    steps: list[Step] = []
    tokenizer = Tokenizer("".join(chr(65 + token_id) for token_id in range(VOCABULARY)))
    writer = SampleWriter(tokenizer, trainer.config.model, device=trainer.runtime.device, length=3, seed=1)
    trainer.rehearse()
    while not trainer.is_finished:
        if trainer.progress.step in (0, 7):
            evaluate(trainer.weights.working, IDS[:100])
            writer.write(trainer.model, Interrupt())
        if trainer.progress.step == 7:
            trainer.load(copy.deepcopy(trainer.state()))
        steps.append(trainer.step())
    return steps


@pytest.mark.parametrize(
    "positions, precision",
    [
        ("sinusoidal", torch.float32),
        *(
            pytest.param(positions, precision, marks=pytest.mark.nightly)
            for positions in POSITIONS
            for precision in (torch.float32, torch.bfloat16)
            if (positions, precision) != ("sinusoidal", torch.float32)
        ),
    ],
)
def test_steps_obey_the_rules_of_cuda_graphs(replay, monkeypatch, positions, precision):
    """Twelve steps equal eager ones to the bit, with a single capture of the forward and of the backward pass."""
    monkeypatch.setattr(model_file, "TABLE_NUMBERS", 32)  # so that the table of positions grows after the model is built
    # In bfloat16 on a CPU, torch rounds dropout's scale in the eager backward pass, and not in the captured one.
    dropout = SHAPE.dropout if precision == torch.float32 else 0.0
    config = dataclasses.replace(CONFIG, model=dataclasses.replace(SHAPE, positions=positions, dropout=dropout))
    eager = make_trainer(config, compiled=False, precision=precision)
    compiled = make_trainer(config, compiled=True, precision=precision)
    clock = time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + 60 * len(replay.graphs))  # to capture takes a minute
    assert sum(step_parts(compiled)) < 10
    assert run(eager) == run(compiled)
    assert torch.equal(eager.weights.vector, compiled.weights.vector)
    assert len(replay.graphs) == 2 and replay.calls >= 2 * 12 * 2  # 2 micro-batches in each step
    for graph in replay.graphs:
        calls = [node.target for node in graph.graph.nodes if node.op == "call_function"]
        assert not [call for call in calls if getattr(call, "_schema", None) and call._schema.is_mutable]


def test_steps_with_a_teacher_are_captured_once_and_equal_the_eager_ones(replay):
    eager, compiled = (make_trainer(CONFIG, compiled=choice, teachers=1) for choice in (False, True))
    assert run(eager) == run(compiled)
    assert torch.equal(eager.weights.vector, compiled.weights.vector)
    assert len(replay.graphs) == 2


@pytest.fixture(scope="module")
def machine_code() -> None:
    """The test compiles to machine code, as training on a GPU does; it skips where torch cannot."""
    if trouble := _why_not_compile(torch.device("cpu")):
        pytest.skip(f"torch cannot compile here: {trouble}")


@pytest.mark.nightly
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("name", ["adamw", "muon"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_steps_in_machine_code_are_the_eager_ones(machine_code, captured_once, positions, name, dropout):
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
