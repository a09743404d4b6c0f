"""What a run computes with: chosen by the machine, the settings and the model."""

import re
from dataclasses import replace

import pytest
import torch

from chargpt import device
from chargpt.config import Config, RuntimeConfig
from chargpt.device import cpu_precision
from chargpt.errors import UserError
from chargpt.kernels.compiler import HOW_TO_INSTALL, Unavailable
from chargpt.kernels.step import StepKernel
from chargpt.model import GPTConfig
from chargpt.training.runtime import choose_runtime


def runtime(**settings: object):
    return choose_runtime(Config(runtime=RuntimeConfig(device="cpu", threads=1, **settings)))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_settings_of_the_kernels_decide_and_are_recorded(precision, pytestconfig):
    if pytestconfig.getoption("step"):
        pytest.skip("auto means torch with --step torch")
    try:
        StepKernel(getattr(torch, precision))
    except Unavailable:
        pytest.skip("needs a C compiler, and for bfloat16 a CPU that multiplies such numbers")
    for step, attention, steps, pays, said in (
        ("auto", "auto", "native [0-9a-f]{8}", "compiled [0-9a-f]{8}", "steps compiled from C"),
        ("native", "auto", "native [0-9a-f]{8}", "compiled [0-9a-f]{8}", "steps compiled from C"),
        ("torch", "auto", "torch", "compiled [0-9a-f]{8}", "attention compiled from C"),
        ("auto", "plain", "torch", "plain", "1 thread"),
    ):
        chosen = runtime(precision=precision, step=step, attention=attention)
        recorded = chosen.environment()
        assert re.fullmatch(steps, recorded["step"]) and re.fullmatch(pays, recorded["attention"])
        assert chosen.describe().endswith(said) and (chosen.step is None) == (steps == "torch")
    large = GPTConfig(n_layer=12, n_head=12, n_embd=768)
    assert choose_runtime(Config(model=large, runtime=RuntimeConfig(device="cpu", threads=1, precision=precision))).step is None


def test_steps_that_no_kernel_computes_cannot_be_asked_for(no_compiler):
    with pytest.raises(UserError, match="runtime.step: native given.*no C compiler found.*runtime.step=auto"):
        runtime(step="native")
    odd = Config(model=GPTConfig(n_embd=36), runtime=RuntimeConfig(device="cpu", threads=1, step="native"))
    with pytest.raises(
        UserError, match="runtime.step: native given.*it needs a model.n_embd that is a multiple of 32; use runtime.step=auto"
    ):
        choose_runtime(odd)


def test_attention_that_cannot_be_compiled_is_said_with_its_reason_unless_it_is_not_wanted(no_compiler):
    said = runtime().slower
    assert "no C compiler found" in said and HOW_TO_INSTALL in said
    assert runtime(attention="plain").slower == ""


@pytest.mark.parametrize("can, expected", [(True, torch.bfloat16), (False, torch.float32)])
def test_the_processors_instructions_decide_the_precision(monkeypatch, can, expected):
    """torch's own answer is replaced here, since no environment variable changes it."""
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: can)
    monkeypatch.setattr(device, "cpu_precision", cpu_precision)  # not what --precision has set
    chosen = runtime(precision="auto")
    assert chosen.precision == expected
    assert chosen.environment()["precision"] == str(expected).removeprefix("torch.")
    assert can or "float32" in chosen.describe()
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):  # what is asked for is used
        assert runtime(precision=name).precision == dtype


def test_a_device_that_is_missing_is_a_users_mistake():
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    with pytest.raises(UserError, match="--device"):
        choose_runtime(replace(Config(), runtime=RuntimeConfig(device="cuda")))
