"""Writing on a CPU needs numpy and safetensors alone, and gives the text that it gives with torch."""

import dataclasses
import os
import subprocess
import sys
import typing
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import publish_run

import model as model_file
import sample
from chargpt import processor
from chargpt.config import ModelConfig
from chargpt.errors import UserError
from chargpt.model import GPT, GPTConfig
from chargpt.processor import core_count
from chargpt.runs.load import find_checkpoint
from chargpt.sampling.c_texts import load_kernel
from chargpt.sampling.rules import RandomNumbers
from chargpt.standard_model import KINDS, SINUSOID_SCALE

ROOT = Path(__file__).parents[2]
SHAPE = {"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 12, "bias": True}
# What a run that writes must do without.
OTHERS = ("torch", "yaml", "tqdm", "filelock", "tensorboard", "PIL", "jinja2")


@pytest.mark.parametrize("seed", [0, 1, 1337, 2**32 + 5, 2**62 + 12345])
def test_the_random_numbers_are_those_of_torch(seed):
    ours, theirs = RandomNumbers(seed), torch.Generator().manual_seed(seed)
    for count in (1, 5, 700):
        assert np.array_equal(ours.uniform(count), torch.rand(count, dtype=torch.float64, generator=theirs).numpy())
        assert ours.below(2**62, count) == torch.randint(2**62, (count,), generator=theirs).tolist()


def test_the_settings_of_a_model_are_the_fields_of_its_config():
    ours, theirs = (
        {field.name: (typing.get_type_hints(shape)[field.name], field.default) for field in dataclasses.fields(shape)}
        for shape in (ModelConfig, GPTConfig)
    )
    kinds, default = ours.pop("positions")
    assert (str, default) == theirs.pop("positions") and ours == theirs
    assert typing.get_args(kinds) == tuple(model_file.POSITIONS) == tuple(KINDS)


@pytest.mark.parametrize("positions", model_file.POSITIONS)
def test_the_positions_are_those_of_the_model(positions):
    shape = ModelConfig(**SHAPE, positions=positions)
    gpt = GPT(GPTConfig(**vars(shape)), 7)
    weights = {name: tensor.numpy() for name, tensor in gpt.state_dict().items()}
    expected = gpt.position_table(shape.block_size).detach().numpy()
    assert np.abs(KINDS[positions].table(weights, shape) - expected).max() < 1e-7
    assert SINUSOID_SCALE == model_file.SINUSOID_SCALE


def run_without_torch(folder: Path, *words: str, keys: str = "") -> subprocess.CompletedProcess:
    """`sample.py` where nothing but numpy and safetensors can be imported."""
    (folder / "sitecustomize.py").write_text(f"import sys\nfor name in {OTHERS}:\n    sys.modules[name] = None\n")
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "sample.py", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, input=keys, capture_output=True, text=True, timeout=60)


def test_a_text_and_a_turn_need_no_torch_and_are_those_of_torch(compiled, tmp_path, capsys):
    compiled(load_kernel)
    torch.set_num_threads(core_count())  # of which the last digits depend
    run = publish_run(tmp_path / "run")
    options = [str(run), "--device", "cpu", "--seed", "1", "--length", "60"]
    for more in ("", "--samples 3 --top-p 0.8 --json", "--lines 2 --unique", "--repetition-penalty 2 --precision int8"):
        done = run_without_torch(tmp_path, *options, *more.split())
        assert done.returncode == 0 and "cpu (compiled)" in done.stderr, done.stderr
        assert sample.main([*options, *more.split()]) == 0 and capsys.readouterr().out == done.stdout
    done = run_without_torch(tmp_path, *options, "--interactive", keys="abc\n/temperature 0.5\n\n/quit\n")
    assert done.returncode == 0 and len(done.stdout) > 60


def test_what_is_missing_or_damaged_is_one_line_without_torch(tmp_path):
    run = publish_run(tmp_path / "run")
    done = run_without_torch(tmp_path, str(run), "--device", "cuda", "--length", "5")
    assert done.returncode == 2 and done.stderr.startswith("error: torch: not installed") and done.stderr.count("\n") == 1
    (path,) = run.glob("step-*/model.safetensors")
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with pytest.raises(UserError) as error:
        find_checkpoint(str(run), tmp_path)
    done = run_without_torch(tmp_path, str(run), "--device", "cpu")
    assert done.returncode == 2 and done.stderr == f"error: {error.value}\n"


@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_a_gpu_is_looked_for_only_if_torch_may_use_one(tmp_path, monkeypatch, system):
    """On a Mac as elsewhere: Metal is taken only where it is named."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    version = tmp_path / "torch" / "version.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(processor.sys, "platform", system)
    monkeypatch.setattr(processor, "AMD", tmp_path / "kfd")
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(processor, "DRIVERS", ("no-such-library.so",))
    for text, drivers, expected in (
        ("cuda: Optional[str] = None\nhip: Optional[str] = None\n", True, False),
        ("cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n", False, False),
        ("cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n", True, True),
        ("cuda: Optional[str] = None\nhip: Optional[str] = '6.4'\n", True, True),
    ):
        version.write_text(text)
        (tmp_path / "kfd").touch() if drivers else (tmp_path / "kfd").unlink(missing_ok=True)
        assert processor.may_have_gpu() == expected
