"""Measuring a machine: a call's time is the time of a call, and speeds are what was done in it."""

import pytest
import torch
from helpers import Clock

from chargpt.analysis import machine
from chargpt.analysis.machine import (
    limits,
    machine_name,
    seconds_per_call,
    three_digits,
)

CPU = torch.device("cpu")


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(machine, "time", clock)
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
    monkeypatch.setattr(machine, "seconds_per_call", lambda work, device, *, seconds: (work(), 1.0)[1])
    assert machine.product_speed(torch.float32, CPU, side=100) == pytest.approx(2 * 100**3 / 1e9)
    assert machine.copy_speed(CPU, numbers=1000) == pytest.approx(8000 / 1e9)  # each number is read and written
    assert machine.read_speed(CPU, numbers=1000) == pytest.approx(4000 / 1e9)


def test_the_limits_are_one_line(monkeypatch):
    monkeypatch.setattr(machine, "SIDE", {"cpu": 32})
    monkeypatch.setattr(machine, "copy_speed", lambda device, *, seconds: 12.34)
    monkeypatch.setattr(machine, "read_speed", lambda device, *, seconds: 1234.5)
    line = limits(CPU, seconds=0.001)
    assert line.startswith("products in float32 ") and line.endswith("copies 12.3 GB/s, reads 1,234 GB/s")
    assert " GFLOP/s, bfloat16 " in line


def test_the_machine_is_named_with_its_threads():
    torch.set_num_threads(1)
    assert machine_name(CPU).endswith("), 1 thread")


@pytest.mark.parametrize("number, shown", [(0.4321, "0.432"), (99.94, "99.9"), (123.4, "123"), (65432.1, "65,432")])
def test_speeds_have_three_digits(number, shown):
    assert three_digits(number) == shown
