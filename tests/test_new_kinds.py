"""A new optimizer, schedule, kind of positions, sampling rule or kind of file works everywhere, or is refused in one line."""

import importlib.util
import json
import math
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, get_args, get_type_hints

import numpy as np
import pytest
import torch
from helpers import length_of, logged, weights_of, written
from safetensors.torch import load_file

import chargpt
import sample
import train
from chargpt import __main__ as verbs
from chargpt import standard_model
from chargpt.config import DataConfig, ModelConfig, OptimConfig
from chargpt.errors import UserError
from chargpt.exchange.export import TARGETS, check_target
from chargpt.kernels import attention
from chargpt.kernels.step import KernelModel, StepKernel
from chargpt.model import GPT, POSITIONS, GPTConfig
from chargpt.planning.cli import parse_options
from chargpt.planning.plan import make_plan
from chargpt.sampling import c_texts, rules
from chargpt.sampling.c_texts import c_writer, load_kernel
from chargpt.sampling.options import SamplingOptions, option
from chargpt.sampling.rules import NEVER
from chargpt.sampling.torch_texts import TorchTexts, torch_writer
from chargpt.sampling.writer import Writer
from chargpt.text import formats
from chargpt.text.corpus import load_corpus
from chargpt.text.kind import Kind
from chargpt.training.learning_rate import SCHEDULES, Schedule, decay_start, learning_rate
from chargpt.training.optimizers import OPTIMIZERS, WITH_MINUTES, WITHOUT_MINUTES, Optimizer

ROOT = Path(__file__).parents[1]


class PlainDescent(Optimizer):
    """Stochastic gradient descent with momentum."""

    def __init__(self, weights, config):
        super().__init__(weights, config)
        self._momentum = self._zeros("momentum", slice(0, len(weights.vector)))

    @torch.no_grad()
    def update(self, rate, skips):
        weights = self._weights
        weights.vector.sub_(self._momentum.mul_(0.5).add_(weights.gradient), alpha=rate)
        self._count += 1


@pytest.fixture
def plain(monkeypatch) -> str:
    """The name of a new optimizer, added in the two places that chargpt/training/optimizers.py names."""
    kind = replace(
        OPTIMIZERS["adamw"],
        label="Plain",
        make=PlainDescent,
        model={"positions": "sinusoidal", "bias": True},
        rates=((math.inf, 2.5e-3),),
        start_rates=(1.1e-3, 1.1e-3),
        short_contexts=((100_000, 24),),
    )
    monkeypatch.setitem(OPTIMIZERS, "plain", kind)
    monkeypatch.setitem(OptimConfig.__annotations__, "name", Literal["adamw", "muon", "plain"])
    return "plain"


@pytest.fixture
def ramp(monkeypatch) -> str:
    """The name of a new kind of positions: a vector of one repeated number that grows with the position."""
    table = torch.linspace(0, 1, 99).unsqueeze(1)
    monkeypatch.setitem(POSITIONS, "ramp", lambda config, length: table[:length].repeat(1, config.n_embd))
    monkeypatch.setitem(ModelConfig.__annotations__, "positions", Literal["ramp", *POSITIONS])
    return "ramp"


@pytest.fixture
def ramp_in_c(ramp, monkeypatch) -> str:
    """The same for the kernels."""
    table = np.linspace(0, 1, 99, dtype=np.float32)[:, None]
    kind = standard_model.Positions(lambda _, config: table[: config.block_size].repeat(config.n_embd, axis=1))
    monkeypatch.setitem(standard_model.KINDS, ramp, kind)
    return ramp


def trained(text: Path, folder: Path, *settings: str) -> Path:
    """A short run with such settings, interrupted by nothing, and resumed to a few more steps."""
    common = [f"data.cache={folder}/cache", "runtime.threads=1"]
    tiny = ["--config", "tiny", "train.max_steps=4", "train.eval_interval=2", "train.sample_length=5"]
    assert train.main([str(text), "--run", f"{folder}/run", *tiny, *common, *settings]) == 0
    assert train.main(["--resume", "--run", f"{folder}/run", "train.max_steps=6"]) == 0
    return folder / "run"


def works_or_is_refused(words: list[str]) -> bool:
    """Whether a verb works; if not, it has raised a UserError of one line."""
    try:
        assert verbs.main(words) == 0
    except UserError as error:
        assert "\n" not in str(error) and "positions" in str(error), error
        return False
    return True


def test_the_two_lists_of_optimizers_and_of_schedules_are_equal():
    types = get_type_hints(OptimConfig)
    assert set(get_args(types["name"])) == set(OPTIMIZERS) and set(get_args(types["schedule"])) == set(SCHEDULES)
    assert {WITH_MINUTES, WITHOUT_MINUTES} <= set(OPTIMIZERS)


def test_a_new_schedule_decides_when_and_how_the_rate_falls(monkeypatch, text, tmp_path):
    """By the square of what is left, from a third of the run on: also in a training, and after its end was moved."""
    squares = Schedule(begin=lambda config, max_steps: max_steps / 3, remaining=lambda done: (1 - done) ** 2)
    monkeypatch.setitem(SCHEDULES, "squares", squares)
    monkeypatch.setitem(OptimConfig.__annotations__, "schedule", Literal["linear", "cosine", "squares"])
    config = OptimConfig(schedule="squares", warmup_steps=0, learning_rate=1.0, final_fraction=0.0)
    assert decay_start(config, length_of(config, 90)) == 30
    assert [learning_rate(step, config, length_of(config, 90)) for step in (0, 30, 60, 90)] == [1, 1, 0.25, 0]
    rate = ["optim.learning_rate=0.9", "optim.warmup_steps=0", "optim.final_fraction=0", "train.log_interval=1"]
    run = trained(text, tmp_path, "optim.schedule=squares", *rate, "train.max_steps=6")
    assert [line["lr"] for line in logged(run) if "lr" in line] == pytest.approx(
        [0.9 * left**2 for left in (1, 1, 1, 0.75, 0.5, 0.25)]
    )


def test_a_new_optimizer_trains_resumes_samples_and_exports(plain, text, tmp_path):
    same = [f"optim.name={plain}", "optim.warmup_steps=0", "optim.decay_fraction=0"]
    whole = trained(text, tmp_path / "whole", *same, "train.max_steps=6")
    again = trained(text, tmp_path / "again", *same)
    for name, weights in chargpt.load(whole).model.state_dict().items():
        assert torch.equal(weights, chargpt.load(again).model.state_dict()[name]), "its state is not saved"
    assert chargpt.load(again).step == 6 and len(chargpt.load(again).generate(length=5)) == 5
    assert works_or_is_refused(["export", str(again), "--to", "safetensors", f"{tmp_path}/weights.safetensors"])


@pytest.mark.parametrize("words", [["--minutes", "0.1"], []], ids=["minutes", "default"])
def test_a_new_optimizer_is_planned_by_its_own_figures(plain, text, tmp_path, words):
    options = parse_options([str(text), *words, f"optim.name={plain}", f"data.cache={tmp_path}/cache", "runtime.threads=1"])
    plan = make_plan(options, root=tmp_path)
    model, optim = plan.config.model, plan.config.optim
    assert (optim.name, optim.learning_rate) == (plain, 2.5e-3)
    assert (model.positions, model.bias, model.block_size) == ("sinusoidal", True, 24)
    assert "optimizer Plain" in plan.describe()


def test_a_new_optimizer_is_trained_from_a_start_at_its_own_rate(plain, text, tmp_path):
    words = ["--start", "english", f"optim.name={plain}", f"data.cache={tmp_path}/cache", "runtime.threads=1"]
    config = make_plan(parse_options([str(text), *words]), root=tmp_path).config
    assert (config.optim.name, config.optim.learning_rate) == (plain, 1.1e-3)


def test_new_positions_train_and_write_in_torch_and_exports_refuse_them(ramp, text, tmp_path):
    run = trained(text, tmp_path, f"model.positions={ramp}")
    loaded = chargpt.load(run)
    config = loaded.model.config
    assert config.positions == ramp and not attention.supports(config) and not c_texts.supports(config)
    assert len(loaded.generate(length=40, seed=1)) == 40
    assert sample.main([str(run), "--length", "5"]) == 0
    for name in TARGETS:
        if name != "gguf" or importlib.util.find_spec("gguf"):
            assert works_or_is_refused(["export", str(run), "--to", name, f"{tmp_path}/{name}"]) == (name == "safetensors")
            assert (tmp_path / name).exists() == (name == "safetensors")


def test_new_positions_are_an_entry_for_the_kernels_and_the_exports(ramp_in_c, compiled, text, tmp_path):
    run = trained(text, tmp_path, f"model.positions={ramp_in_c}")
    for name in TARGETS:
        if name != "gguf" or importlib.util.find_spec("gguf"):
            assert works_or_is_refused(["export", str(run), "--to", name, f"{tmp_path}/{name}"])
    tables = [POSITIONS[ramp_in_c](GPTConfig(), 32), load_file(tmp_path / "hf/model.safetensors")["transformer.wpe.weight"]]
    assert torch.equal(tables[0][:, :32], tables[1])
    torch.manual_seed(0)
    gpt = GPT(GPTConfig(n_layer=1, n_head=2, n_embd=32, block_size=16, positions=ramp_in_c), 9).eval()
    assert attention.supports(gpt.config) and c_texts.supports(gpt.config)
    in_c = c_writer(weights_of(gpt), gpt.config, kernel=compiled(load_kernel))
    found = [written(writer, [[1, 2, 3]], 30, SamplingOptions(), 0).tolist() for writer in (in_c, torch_writer(gpt))]
    assert found[0] == found[1]
    idx = torch.randint(9, (2, 16))
    torch.testing.assert_close(KernelModel.of(compiled(lambda cache: StepKernel(torch.float32)), gpt).logits(idx), gpt(idx))


def test_new_positions_may_rotate_and_exports_refuse_them(compiled, monkeypatch):
    monkeypatch.setitem(POSITIONS, "turn", POSITIONS["rotary"])
    monkeypatch.setitem(standard_model.KINDS, "turn", standard_model.KINDS["rotary"])
    shape = GPTConfig(n_layer=1, n_head=2, n_embd=32, block_size=16, positions="rotary")
    known, new = GPT(shape, 9), GPT(replace(shape, positions="turn"), 9)
    new.load_state_dict(known.state_dict())
    in_c = c_writer(weights_of(new), new.config, kernel=compiled(load_kernel))
    writers = torch_writer(known), torch_writer(new), in_c, Writer(partial(TorchTexts, new, chooses=True), 16)
    found = [written(writer, [[1, 2, 3]], 30, SamplingOptions(), 0).tolist() for writer in writers]
    assert found == found[:1] * 4
    for name in TARGETS.keys() - {"safetensors"}:
        with pytest.raises(UserError, match="cannot compute turn positions"):
            check_target(name, new.config)


def test_a_new_sampling_rule_is_its_function_and_its_option(compiled, monkeypatch):
    """The most likely character is never chosen, by any engine. decode.c and a CUDA GPU do not know this rule."""

    def without_best(logits, _, texts):
        logits = logits.copy()
        np.put_along_axis(logits, logits.argmax(axis=-1, keepdims=True), NEVER, axis=-1)
        return logits

    monkeypatch.setattr(rules, "without_best", without_best, raising=False)

    @dataclass(frozen=True, kw_only=True)
    class WithAnother(SamplingOptions):
        without_best: bool = option("rules", False, off=False)("")

    torch.manual_seed(0)
    gpt = GPT(GPTConfig(n_layer=1, n_head=2, n_embd=16, block_size=16, bias=True), 9).eval()
    in_c = c_writer(weights_of(gpt), gpt.config, kernel=compiled(load_kernel))
    options = WithAnother(temperature=1, top_k=2, without_best=True)
    writers = in_c, torch_writer(gpt), Writer(partial(TorchTexts, gpt, chooses=True), 16)
    for without in (True, False):
        wanted = replace(options, without_best=without)
        (ids,), *others = (written(writer, [[1, 2, 3]], 10, wanted, 0).tolist() for writer in writers)
        likeliest = gpt(torch.tensor([[1, 2, 3, *ids]]))[0, 2:-1].argmax(dim=-1).tolist()
        assert others == 2 * [[ids]] and any(map(int.__eq__, ids, likeliest)) != without


POEMS = [{"title": f"Poem {n}", "author": "Ann" if n % 3 else "Ben", "text": f"the sea,\nand a stone {n}"} for n in range(30)]


@pytest.fixture
def toml(tmp_path, monkeypatch) -> Kind:
    """The kind of file that docs/design.md adds, from the module that stands there."""
    _, _, rest = (ROOT / "docs" / "design.md").read_text(encoding="utf-8").partition("**A kind of file.**")
    (tmp_path / "toml_files.py").write_text(rest.partition("```python\n")[2].partition("```")[0])
    monkeypatch.syspath_prepend(tmp_path)
    row = importlib.import_module("toml_files").TOML
    monkeypatch.delitem(sys.modules, "toml_files")
    monkeypatch.setattr(formats, "KINDS", (*formats.KINDS, row))
    return row


def block(poem: dict[str, str]) -> str:
    return "[[poem]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in poem.items())


@pytest.mark.parametrize("settings", [{}, {"items": "text", "label": "author"}, {"field": "title", "where": "author=Ben"}])
def test_a_new_kind_of_file_is_a_reader_and_a_row(settings, toml, tmp_path):
    """It is read as the same records in JSON lines: its fields are texts, items, labels and conditions."""
    text = "".join(map(block, POEMS))
    (tmp_path / "poems.toml").write_text(text)
    (tmp_path / "poems.jsonl").write_text("\n".join(map(json.dumps, POEMS)))
    config = DataConfig(cache=f"{tmp_path}/cache", **settings)
    found = [load_corpus([f"{tmp_path}/poems.{end}"], config, root=tmp_path, block_size=8) for end in ("toml", "jsonl")]
    assert found[0].fingerprint == found[1].fingerprint and "TOML: the field " in str(found[0].notes)
    wrong = replace(config, **{"items" if "items" in settings else "field": "verse"})
    no_field = "line 1: no field 'verse', its fields are: title, author, text; set data"
    for more, said in (("", no_field), ("x", "line 117: not TOML .*; correct this poem")):
        (tmp_path / "poems.toml").write_text(text + more)
        with pytest.raises(UserError, match=f"poems.toml: {said}"):
            load_corpus([f"{tmp_path}/poems.toml"], wrong, root=tmp_path, block_size=8)
