"""Joining a group: one process costs nothing, and a number of processes that cannot share evenly is one line."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from chargpt.parallel.group import Group
from chargpt.parallel.processes import Processes, join_group
from chargpt.terminal import UserError

ROOT = Path(__file__).parents[2]


def test_without_torchrun_there_is_one_process(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert type(join_group()) is Group


def test_one_process_imports_nothing_of_torch_for_several():
    code = """
import sys, torch
before = {name for name in sys.modules if name.startswith("torch.distributed")}
import train
from chargpt.parallel.processes import join_group
join_group()
after = {name for name in sys.modules if name.startswith("torch.distributed")}
print(after - before)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


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


def test_a_port_that_each_process_would_choose_by_itself_is_one_line(monkeypatch):
    for name, value in (("WORLD_SIZE", "2"), ("RANK", "0"), ("MASTER_PORT", "0")):
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match="MASTER_PORT: '0' given; use the same free port for all processes"):
        join_group()


def test_ctrl_c_ends_a_process_that_waits_for_another_one(programs):
    """It has waited for as long as the notice takes, and would wait for minutes."""
    others = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    with programs.start("train", environment={**os.environ, **others}) as running:
        assert b"rank 1: waiting until all 2 processes have joined" in running.stderr.readline()
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=20) == 130


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_waits_for_another_one_says_so_and_gives_up(monkeypatch, capfd, rank):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for name, value in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port), ("RANK", rank), ("WORLD_SIZE", 2)):
        monkeypatch.setenv(name, str(value))
    alone = Processes(rank, 2, local_rank=rank, restarts=0, joining=2, patience=0.2)
    with pytest.raises(UserError, match=f"rank {rank}: the processes cannot reach each other .*; start all of them"), alone:
        pass
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("rank")]
    assert lines == [f"rank {rank}: waiting until all 2 processes have joined, for at most 2 seconds"]
