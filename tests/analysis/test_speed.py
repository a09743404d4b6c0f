"""Speed: the time of a call is its time, the least time is that of the products of a step, and real objects are measured."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from helpers import Clock
from torch import Tensor
from torch.overrides import TorchFunctionMode

from chargpt.analysis import speed
from chargpt.analysis.speed import (
    WARM_UP,
    Size,
    limits,
    machine_name,
    runtime_for,
    sampling_floor,
    sampling_speed,
    seconds_per_call,
    three_digits,
    training_floor,
    training_flop,
    training_seconds,
    weight_count,
)
from chargpt.model import GPT, GPTConfig
from chargpt.sampling import decoder
from chargpt.training.trainer import Trainer

CPU = torch.device("cpu")
SHAPE = GPTConfig(n_layer=3, n_head=2, n_embd=32, block_size=16)


class Products(TorchFunctionMode):
    """Counts the operations of the products by matrices while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.flop = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is F.linear:
            self.flop += 2 * args[0].numel() * args[1].size(0)
        if func in (Tensor.matmul, Tensor.__matmul__):
            self.flop += 2 * args[0].numel() * args[1].size(-1)
        return func(*args, **(kwargs or {}))


def test_a_step_has_three_times_the_products_of_the_forward_pass_and_half_of_attentions():
    model, idx = GPT(SHAPE, 50), torch.randint(50, (4, 16))
    with Products() as forward:
        model(idx, idx)
    queries_and_keys = 2 * 4 * 16 * 16 * 32  # scores of one layer; the output has as many
    attention = 3 * 3 * 2 * queries_and_keys // 2
    assert training_flop(SHAPE, batch_size=4, vocab_size=50) == 3 * forward.flop + attention


def test_the_weights_are_those_that_every_character_is_multiplied_with():
    model = GPT(SHAPE, 50)
    others = sum(p.numel() for name, p in model.named_parameters() if p.dim() < 2 or name == "position_embedding.weight")
    assert weight_count(SHAPE, 50) == model.parameter_count() - others


def test_the_floor_of_a_step_is_the_sum_of_its_products(monkeypatch):
    """With a clock that counts operations, its time is their number."""
    done = []

    def count(work, device, *, seconds):
        with Products() as products:
            work()
        done.append(products.flop)
        return products.flop

    monkeypatch.setattr(speed, "seconds_per_call", count)
    found = training_floor(SHAPE, batch_size=4, vocab_size=50, dtype=torch.float32, device=CPU)
    assert found.seconds == found.flop == training_flop(SHAPE, batch_size=4, vocab_size=50) and len(done) == 18


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_floor_has_a_time_and_a_speed(dtype):
    found = training_floor(SHAPE, batch_size=4, vocab_size=50, dtype=dtype, device=CPU, seconds=0.001)
    assert found.seconds > 0 and found.gflops == found.flop / found.seconds / 1e9


def test_sampling_reads_the_weights_and_the_cache_or_multiplies_with_them(monkeypatch):
    settings = {"vocab_size": 50, "device": CPU, "seconds": 0.001}
    assert sampling_floor(SHAPE, 1, **settings, gflops=1e9) > 0
    monkeypatch.setattr(speed, "read_speed", lambda device, *, numbers, seconds: 1e-6)  # GB/s
    for shape in (SHAPE, dataclasses.replace(SHAPE, block_size=1 << 14)):
        cached = 3 * 2 * 32 * shape.block_size / 2  # keys and values of half a context, in three layers
        assert sampling_floor(shape, 1, **settings, gflops=1e9) == pytest.approx(4 * (weight_count(shape, 50) + cached) / 1e3)
    scores_and_values = 2 * 2 * 32 * 16 / 2  # of one layer and one character, with half a context before it
    flop = 8 * (2 * weight_count(SHAPE, 50) + 3 * scores_and_values)
    assert sampling_floor(SHAPE, 8, **settings, gflops=1e-6) == flop / 1e3


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(speed, "time", clock)
    return clock


@pytest.mark.parametrize("seconds", [0.00005, 0.003])
def test_a_call_takes_as_long_as_it_sleeps(seconds, clock):
    """Also one that is shorter than a group of calls."""
    assert seconds_per_call(lambda: clock.sleep(seconds), CPU, seconds=0.02) == pytest.approx(seconds)


def test_a_slow_call_is_not_repeated_for_long(clock):
    calls = []
    seconds_per_call(lambda: (calls.append(1), clock.sleep(0.02)), CPU, seconds=0.001, least=50)
    assert len(calls) == 1


def test_speeds_count_what_was_done(monkeypatch):
    monkeypatch.setattr(speed, "seconds_per_call", lambda work, device, *, seconds: (work(), 1.0)[1])
    assert speed.product_speed(torch.float32, CPU, side=100) == pytest.approx(2 * 100**3 / 1e9)
    assert speed.copy_speed(CPU, numbers=1000) == pytest.approx(8000 / 1e9)  # each number is read and written
    assert speed.read_speed(CPU, numbers=1000) == pytest.approx(4000 / 1e9)


def test_the_limits_are_one_line(monkeypatch):
    monkeypatch.setattr(speed, "CPU_SIDE", 32)
    monkeypatch.setattr(speed, "copy_speed", lambda device, *, seconds: 12.34)
    monkeypatch.setattr(speed, "read_speed", lambda device, *, seconds: 1234.5)
    line = limits(CPU, seconds=0.001)
    assert line.startswith("products in float32 ") and line.endswith("copies 12.3 GB/s, reads 1,234 GB/s")
    assert " GFLOP/s, bfloat16 " in line


def test_the_machine_is_named_with_its_threads():
    torch.set_num_threads(1)
    assert machine_name(CPU).endswith("), 1 thread")


@pytest.mark.parametrize("number, shown", [(0.4321, "0.432"), (99.94, "99.9"), (123.4, "123"), (65432.1, "65,432")])
def test_speeds_have_three_digits(number, shown):
    assert three_digits(number) == shown


SIZE = Size(model=GPTConfig(n_layer=1, n_head=2, n_embd=16, block_size=8), batch_size=4)


def test_a_step_is_timed_after_the_first_ones(monkeypatch):
    steps, step = [], Trainer.step
    monkeypatch.setattr(Trainer, "step", lambda self: steps.append(step(self)) or steps[-1])
    config, runtime = runtime_for(SIZE, CPU)
    seconds = training_seconds(SIZE, config, runtime, seconds=0.0, least=2)
    assert seconds > 0 and len(steps) == WARM_UP + 2
    assert config.chars_per_step == SIZE.characters == 32 and not runtime.compile


@pytest.mark.parametrize("texts", [1, 3])
def test_characters_a_second_count_every_text(texts, monkeypatch):
    seconds = iter(range(1000))  # a clock that goes on by one second between two looks
    monkeypatch.setattr("chargpt.analysis.speed.time.perf_counter", lambda: next(seconds))
    model = GPT(SIZE.model, SIZE.vocab_size).eval()
    monkeypatch.setattr("chargpt.analysis.speed.choose_decoder", lambda device, config: (decoder.Decoder, "torch"))
    assert sampling_speed(model, texts, seconds=0.5) == 7 * texts
