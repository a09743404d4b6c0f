"""tests/benchmarks/machine_speed.py: the least time of a step is that of its products, and each measurement has a row."""

import functools
import re

import torch
import torch.nn.functional as F
from benchmarks import machine_speed
from benchmarks.machine_speed import tables, training_floor, training_flop, weight_count
from torch import Tensor
from torch.overrides import TorchFunctionMode

from chargpt.model import GPT, GPTConfig

CPU = torch.device("cpu")
SHAPE = GPTConfig(n_layer=3, n_head=2, n_embd=32, block_size=16)
HUGE = (1000, 8, 4096, 2048, 64, 1)


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
    others = sum(p.numel() for name, p in model.named_parameters() if p.dim() < 2 or name == "position_embedding.weight")
    assert weight_count(SHAPE, 50) == model.parameter_count() - others


def test_the_floor_of_a_step_is_the_sum_of_its_products(monkeypatch):
    """With a clock that counts operations, its time is their number."""

    def count(work, device, *, seconds):
        with Products() as products:
            work()
        return products.flop

    monkeypatch.setattr(machine_speed, "seconds_per_call", count)
    found = training_floor(SHAPE, batch_size=4, vocab_size=50, dtype=torch.float32, device=CPU)
    assert found.seconds == found.flop == training_flop(SHAPE, batch_size=4, vocab_size=50)


def test_every_measurement_has_a_row_and_what_takes_too_long_on_a_cpu_is_named(monkeypatch):
    monkeypatch.setattr(machine_speed, "CPU_SIDE", 64)
    for name in ("copy_speed", "read_speed"):
        monkeypatch.setattr(machine_speed, name, functools.partial(getattr(machine_speed, name), numbers=9999))
    first, left_out, *lines = tables(CPU, {"small": (2, 2, 64, 32, 4, 4), "huge": HUGE}, seconds=0.01)
    assert f"torch {torch.__version__}" in first and first.count("GFLOP/s") == first.count("GB/s") == 2
    assert re.fullmatch(r"not measured: huge; the products of a step would take \d+ seconds", left_out)
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    assert [row[0] for row in rows] == ["small (2/2/64, 4 x 32)", "small, context 32", "small, context 32"]
    assert all(float(cell.replace(",", "").rstrip(" %")) > 0 for row in rows for cell in row[1:])
