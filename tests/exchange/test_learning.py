"""A page learns as the program does: the same batches, losses and weights, in Node.js, as `Trainer` with the C here."""

import itertools
import json
import re
import subprocess
from base64 import b64decode
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from page_helpers import VOCABULARIES, new_model
from scripts import needs_node, run_script

from chargpt.config import Config, ModelConfig, OptimConfig, TrainConfig
from chargpt.exchange import html, learning
from chargpt.exchange.export import ExportOptions
from chargpt.exchange.html import tensors_of
from chargpt.kernels import compiler
from chargpt.kernels.attention import load_kernel
from chargpt.kernels.compiler import LEARN, Unavailable
from chargpt.kernels.step import StepKernel
from chargpt.planning import adaptation, law
from chargpt.planning.budget import TimeModel
from chargpt.planning.cli import TrainOptions
from chargpt.planning.initial_settings import Asked
from chargpt.sampling.loaded_model import load_model
from chargpt.settings import Settings
from chargpt.text.facts import ngram_probabilities
from chargpt.text.tokenizer import Tokenizer
from chargpt.training.batches import Batches
from chargpt.training.evaluation import evaluate
from chargpt.training.initialisation import initial_model
from chargpt.training.runtime import Runtime
from chargpt.training.trainer import Trainer

HERE = Path(__file__).parent
STEPS, V = 20, 41
IDS = np.random.default_rng(5).integers(0, V, 3000) // np.random.default_rng(6).integers(1, 5, 3000)
ENGINE = '[^>]*id="engine"'


@pytest.mark.parametrize("script", ["law.js", "learn.js", "lesson.js"])
def test_every_number_of_the_program_that_a_page_asks_for_is_in_it(script):
    """A constant that was renamed, or has moved to another module, would be `undefined` there."""
    code, numbers = html.TEMPLATE.with_name(script).read_text(encoding="utf-8"), learning.numbers()
    for group, names in re.findall(r"\b(?:P\.|const )?(L|law|start|S)\.([A-Z][A-Z_]+)\b", code):
        assert names in numbers["start" if group in ("start", "S") else "law"], names
    for names, group in re.findall(r"\{([^{}]*)\} = P\.(law|start|initial)\b", code):
        assert {name.partition(":")[0].strip() for name in names.split(",")} <= numbers[group].keys(), names


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
    scripts = [str(html.TEMPLATE.with_name(name)) for name in ("tokenizer.js", "shapes.js", "engine.js", "learn.js")]
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


@pytest.fixture(scope="module")
def blank(tmp_path_factory) -> str:
    """A page that learns, without the kernel."""
    path = tmp_path_factory.mktemp("blank") / "page.html"
    html.write(None, path, ExportOptions(name="", texts=[], learning={"numbers": learning.numbers(), "code": {}}))
    return path.read_text(encoding="utf-8")


def asked(page: str, code: str, *, script: str = ENGINE) -> Any:
    """What `code` returns after a script of the page, with the numbers of the program."""
    return run_script(page, f"P = {json.dumps(learning.numbers())};\n{code}" if script == ENGINE else code, script=script)


TEXTS = [
    law.Text(characters=characters, entropy=entropy, ngram_loss=0.7 * entropy, vocabulary=vocabulary)
    for characters in (300, 9_000, 60_000, 1_000_000, 40_000_000)
    for entropy, vocabulary in ((3.1, 65), (4.0, 180), (6.2, 4000))
]
TRIED = [(text, n_layer, width, seen) for text in TEXTS for n_layer, width in law.SHAPES[:5] for seen in (2e4, 1e6, 3e7)]


@needs_node
def test_what_a_page_trains_follows_the_law_of_the_program(blank):
    cases = [
        {
            "text": text._asdict() | {"ngram": text.ngram_loss, "judged": 10**6},
            "parameters": 12 * n_layer * width**2,
            "width": width,
            "seen": seen,
        }
        for text, n_layer, width, seen in TRIED
    ]
    code = f"""return {json.dumps(cases)}.map(({{ text, parameters, width, seen }}) => {{
      const {{ decay, dropout, rate, momentum, inStep }} = recipeFor(text, parameters, seen);
      return [expectedLoss(text, parameters, seen), decay, dropout, rate, momentum, inStep, contextFor(text, width, seen)];
    }});"""
    for (text, n_layer, width, seen), found in zip(TRIED, asked(blank, code)):
        parameters = 12 * n_layer * width**2
        recipe = law.recipe_for(text, parameters=parameters, seen=seen, optimizer="muon")
        context = law.context_for(text, n_embd=width, seen=seen, optimizer="muon")
        expected = law.expected_loss(text, parameters=parameters, seen=seen, optimizer="muon")
        assert found == pytest.approx([expected, *recipe, max(16, min(context, text.characters // 2))], rel=1e-9)


@needs_node
def test_a_model_that_knows_its_language_is_trained_as_gently(blank):
    shape = ModelConfig(n_layer=2, n_head=6, n_embd=192, block_size=128, bias=True, positions="rotary", dropout=0.0)
    tokenizer = Tokenizer("".join(map(chr, range(65, 65 + V))))
    speeds = SimpleNamespace(time_model=lambda config: TimeModel(1e-6, 1e-6))
    cases = [*itertools.product((300, 3000, 9000, 200_000), (0.0, 0.4, 2.0), (2, 8))]
    code = f"""const shape = {{ ...{json.dumps(asdict(shape))}, vocab_size: {V} }};
    return {json.dumps(cases)}.map(([characters, distance, n_layer]) =>
      planFromModel({{ characters, judged: Math.floor(characters / 9) }}, {{ ...shape, n_layer }}, distance, Infinity));"""
    for (characters, distance, n_layer), found in zip(cases, asked(blank, code), strict=True):
        corpus = SimpleNamespace(train=range(characters), val=range(characters // 9), tokenizer=tokenizer, has_grown=False)
        job = SimpleNamespace(corpus=corpus, processes=1, seconds=1e9, speeds=speeds)  # there is time for all of it
        settings = Settings(Config(model=replace(shape, n_layer=n_layer)))
        config = adaptation.adapt(settings, job, Asked(TrainOptions(), settings), distance=distance).values
        optim, train = config.optim, config.train
        assert (found["B"], found["steps"], found["patience"]) == (train.batch_size, train.max_steps, train.patience)
        rates = (optim.learning_rate, optim.weight_decay, optim.start_decay)
        assert (found["rate"], found["decay"], found["startDecay"]) == rates
        falls = (optim.momentum, optim.decay_fraction, config.model.dropout)
        assert (found["momentum"], found["falls"], found["dropout"]) == falls


@needs_node
def test_the_table_of_counts_is_that_of_the_program(blank):
    ids = (IDS[:1500], IDS[1500:2100])
    probability = ngram_probabilities(*ids, vocab_size=V)
    code = f"return [ngramLoss({ids[0].tolist()}, {ids[1].tolist()}, {V}), entropyOf({ids[0].tolist()}, {V})];"
    shares = np.bincount(ids[0], minlength=V) / len(ids[0])
    entropy = -(shares[shares > 0] * np.log(shares[shares > 0])).sum()
    assert asked(blank, code) == pytest.approx([-np.log(probability).mean(), entropy], rel=1e-9)


@needs_node
def test_windows_are_drawn_as_in_the_program(blank):
    sizes = ((5, 8), (100, 8), (5000, 16), (70_001, 7))
    cases = [(length, T, B, step) for length, T in sizes for B in (1, 5) for step in (0, 3, 999)]
    code = "(([length, T, B, step]) => startsOf(step, Math.max(length, T + 1), T, { B, seed: 1337 }));"
    code = f"return {json.dumps(cases)}.map{code}"
    for (length, T, B, step), found in zip(cases, asked(blank, code)):
        batches = Batches(np.zeros(length, np.uint8), T, train=TrainConfig(batch_size=B, seed=1337))
        assert found == batches.starts(step).tolist()


CHARACTERS = "\u00e9\u00c9\u201d\u2019\u2014\u00d7\u4e2dZ9;\u00a0\u20ac"


@needs_node
def test_a_new_character_begins_as_the_known_one_that_resembles_it(blank):
    known = Tokenizer(" !\"',-.3aez\u00df")
    code = f"""const known = new Map([...{json.dumps(known.characters)}].map((c, i) => [c, i]));
    return [...{json.dumps(CHARACTERS)}].map((c) => nearest(c, known) ?? null);"""
    assert asked(blank, code) == [known.nearest(character) for character in CHARACTERS]


ENCODED = {
    "utf-8": "na\u00efve \u4e2d",
    "utf-8-sig": "na\u00efve",
    "utf-16": "na\u00efve \u4e2d\U0001f600",
    "cp1252": "na\u00efve \u00e4",
}


@needs_node
def test_files_of_common_encodings_are_read(blank):
    data = [[*text.encode(encoding)] for encoding, text in ENCODED.items()]
    assert asked(blank, f"return {data}.map((one) => decoded(Uint8Array.from(one).buffer));") == [*ENCODED.values()]


@needs_node
def test_a_page_keeps_weights_in_the_nearest_float16(blank):
    numbers = np.random.default_rng(3).normal(size=2000).astype(np.float32) * np.repeat([1e-7, 1e-4, 1, 900], 500)
    numbers = np.append(numbers, [0, -0.0, 65504, 65519, 2**-14, 6e-8, 1.0009765625]).astype(np.float32)
    code = f"return [...float16Of(Float32Array.from({json.dumps(numbers.tolist())}))];"
    bits = np.array(asked(blank, code, script=' type="module"'), np.uint16)
    found, right = bits.view(np.float16).astype(np.float32), numbers.astype(np.float16).astype(np.float32)
    assert np.array_equal(found[numbers != 0], right[numbers != 0])


@needs_node
@pytest.mark.parametrize("positions", ["learned", "rotary", "sinusoidal"])
def test_a_file_that_a_page_keeps_is_a_run(blank, tmp_path, positions):
    loaded = new_model(tmp_path, VOCABULARIES["folded"], bias=positions != "learned", positions=positions)
    tensors = {name: tensor.flatten().tolist() for name, tensor in tensors_of(loaded.model).items()}
    about = html.describe(loaded, ExportOptions(name="sea", texts=["a.txt"])) | {"step": 12, "val_loss": 1.5}
    code = f"""const tensors = {json.dumps(tensors)};
    for (const [name, numbers] of Object.entries(tensors)) tensors[name] = Float32Array.from(numbers);
    const parts = keptFile({{ about: {json.dumps(about)}, tensors }});
    return Buffer.concat(parts.map((part) => Buffer.from(part.buffer, part.byteOffset, part.byteLength))).toString("base64");"""
    (tmp_path / "kept.safetensors").write_bytes(b64decode(asked(blank, code, script=' type="module"')))
    kept, _ = load_model(str(tmp_path / "kept.safetensors"), tmp_path, device="cpu")
    assert (kept.step, kept.val_loss, kept.tokenizer) == (12, 1.5, loaded.tokenizer)
    assert kept.generate("The sea", length=40, seed=2) == loaded.generate("The sea", length=40, seed=2)
