"""Joining a group: one process costs nothing, and a number of processes that cannot share evenly is one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chargpt.parallel.group import Group
from chargpt.parallel.join import join_group
from chargpt.terminal import UserError

ROOT = Path(__file__).parents[2]


def test_without_torchrun_there_is_one_process(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert type(join_group()) is Group


def test_one_process_imports_nothing_for_several():
    code = """
import sys, torch
before = {name for name in sys.modules if name.startswith("torch.distributed")}
import train
from chargpt.parallel.join import join_group
join_group()
after = {name for name in sys.modules if name.startswith("torch.distributed")}
print(after - before, "chargpt.parallel.processes" in sys.modules)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "set() False\n", done.stderr


@pytest.mark.parametrize("size", [3, 6, 12])
def test_a_number_that_is_no_power_of_two_is_one_line_by_one_process(monkeypatch, size):
    monkeypatch.setenv("WORLD_SIZE", str(size))
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UserError, match=f"{size} processes in all; use a power of two"):
        join_group()
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(SystemExit):
        join_group()


@pytest.mark.parametrize("name", ["WORLD_SIZE", "RANK", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT"])
@pytest.mark.parametrize("value", ["two", "-1", "1.5", "9" * 30])
def test_a_variable_that_is_no_number_is_one_line(monkeypatch, name, value):
    for other, number in (("WORLD_SIZE", "2"), ("RANK", "0"), (name, value)):
        monkeypatch.setenv(other, number)
    with pytest.raises(UserError, match=f"{name}: '{value}' given; torchrun sets this variable"):
        join_group()


def test_no_process_at_all_is_a_mistake(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "0")
    with pytest.raises(UserError, match="WORLD_SIZE"):
        join_group()
