"""A page learns as the program does: the same batches, losses and weights, in Node.js, as `Trainer` with the C here."""

import json
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from chargpt.config import Config, ModelConfig, OptimConfig, TrainConfig
from chargpt.exchange import html, learning
from chargpt.kernels import compiler
from chargpt.kernels.attention import load_kernel
from chargpt.kernels.compiler import LEARN, Unavailable
from chargpt.kernels.step import StepKernel
from chargpt.training.batches import Batches
from chargpt.training.evaluation import evaluate
from chargpt.training.initialisation import initial_model
from chargpt.training.runtime import Runtime
from chargpt.training.trainer import Trainer

HERE = Path(__file__).parent
STEPS, V = 20, 41
IDS = np.random.default_rng(5).integers(0, V, 3000) // np.random.default_rng(6).integers(1, 5, 3000)
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")


@pytest.fixture(scope="module")
def module(kernel_cache) -> Path:
    """The kernel as WebAssembly with plain SIMD; the test skips without the package ziglang."""
    try:
        compiler.load_web(cache=kernel_cache)
    except Unavailable as reason:
        pytest.skip(f"needs the package ziglang: {reason}")
    return compiler._library(LEARN, ["simd"], kernel_cache, compiler.WEB_TARGET)


def learn(module: Path, config: Config, weights: dict[str, torch.Tensor], plan: dict) -> tuple[dict, dict[str, np.ndarray]]:
    """What a page makes of these weights: its figures, and the weights after STEPS steps."""
    question = {
        "numbers": learning.numbers(),
        "shape": {**asdict(config.model), "vocab_size": V},
        "plan": plan,
        "ids": IDS[:2500].tolist(),
        "val": IDS[2500:].tolist(),
        "names": [*weights],
        "sizes": [tensor.numel() for tensor in weights.values()],
        "steps": STEPS,
    }
    data = json.dumps(question).encode() + b"\n" + b"".join(tensor.numpy().tobytes() for tensor in weights.values())
    scripts = [str(html.TEMPLATE.with_name(name)) for name in ("engine.js", "learn.js")]
    command = ["node", str(HERE / "learn_check.js"), *scripts, str(module)]
    done = subprocess.run(command, input=data, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr.decode()
    line, _, rest = done.stdout.partition(b"\n")
    found, at = {}, 0
    for name, tensor in weights.items():
        if name in dict(weights) and at < len(rest):
            found[name] = np.frombuffer(rest, "<f4", tensor.numel(), at).reshape(tensor.shape)
            at += 4 * tensor.numel()
    return json.loads(line), found


@needs_node
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_twenty_steps_are_those_of_the_trainer(module, compiled, optimizer, positions):
    is_start = positions == "learned"  # with the decay towards the first weights, and without it
    optim = OptimConfig(name=optimizer, learning_rate=4e-3, warmup_steps=3, start_decay=0.3 * is_start, momentum=0.9)
    config = Config(
        model=ModelConfig(n_layer=2, n_head=2, n_embd=64, block_size=24, bias=positions == "rotary", positions=positions),
        optim=optim,
        train=TrainConfig(batch_size=7, max_steps=STEPS),
    )
    torch.manual_seed(1)
    model = initial_model(config.model, V)
    weights = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}
    library = compiled(lambda cache: load_kernel(compiler.STEP_FLOAT32, cache))
    runtime = Runtime(device=torch.device("cpu"), precision=torch.float32, threads=1, step=StepKernel(torch.float32, library))
    trainer = Trainer(model, IDS[:2500].astype(np.uint8), config, runtime=runtime)
    plan = {
        "B": 7,
        "rate": 4e-3,
        "decay": 0.1,
        "startDecay": optim.start_decay,
        "momentum": 0.9,
        "dropout": config.model.dropout,
        "warmup": 3,
        "falls": 0.5,
        "steps": STEPS,
        "seconds": 1e9,
        "seed": config.train.seed,
        "optimizer": optimizer,
    }
    found, after = learn(module, config, weights, plan)
    assert found["starts"] == Batches(IDS[:2500], 24, train=config.train).starts(3).tolist()
    val = IDS[2500:].astype(np.uint8)
    assert found["before"] == pytest.approx(evaluate(trainer.model, val), abs=1e-5)
    assert found["losses"] == pytest.approx([trainer.step().loss for _ in range(STEPS)], abs=1e-5)
    assert found["val"] == pytest.approx(evaluate(trainer.model, val), abs=2e-5)
    assert after.keys() == weights.keys()
    for name, tensor in trainer.model.named_parameters():
        np.testing.assert_allclose(after[name], tensor.detach().numpy(), atol=2e-4, err_msg=name)
