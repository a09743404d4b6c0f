"""The least time of a step and of a character: the products that they contain, all of them and nothing else."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from chargpt.analysis import floor
from chargpt.analysis.floor import sampling_floor, training_floor, training_flop, weight_count
from model import GPT, GPTConfig

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

    monkeypatch.setattr(floor, "seconds_per_call", count)
    found = training_floor(SHAPE, batch_size=4, vocab_size=50, dtype=torch.float32, device=CPU)
    assert found.seconds == found.flop == training_flop(SHAPE, batch_size=4, vocab_size=50) and len(done) == 18


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_floor_has_a_time_and_a_speed(dtype):
    found = training_floor(SHAPE, batch_size=4, vocab_size=50, dtype=dtype, device=CPU, seconds=0.001)
    assert found.seconds > 0 and found.gflops == found.flop / found.seconds / 1e9


def test_sampling_reads_the_weights_and_the_cache_or_multiplies_with_them(monkeypatch):
    settings = {"vocab_size": 50, "device": CPU, "seconds": 0.001}
    assert sampling_floor(SHAPE, 1, **settings, gflops=1e9) > 0
    monkeypatch.setattr(floor, "read_speed", lambda device, *, numbers, seconds: 1e-6)  # GB/s
    for shape in (SHAPE, dataclasses.replace(SHAPE, block_size=1 << 14)):
        cached = 3 * 2 * 32 * shape.block_size / 2  # keys and values of half a context, in three layers
        assert sampling_floor(shape, 1, **settings, gflops=1e9) == pytest.approx(4 * (weight_count(shape, 50) + cached) / 1e3)
    scores_and_values = 2 * 2 * 32 * 16 / 2  # of one layer and one character, with half a context before it
    flop = 8 * (2 * weight_count(SHAPE, 50) + 3 * scores_and_values)
    assert sampling_floor(SHAPE, 8, **settings, gflops=1e-6) == flop / 1e3
