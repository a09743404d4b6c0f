"""Joining a group: one process costs nothing, and a mistake in what torchrun sets is one line."""

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from chargpt.errors import UserError
from chargpt.training.join import join_group

ROOT = Path(__file__).parents[2]


def test_without_torchrun_there_is_one_process(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert join_group().size == 1


@pytest.mark.parametrize("name", ["WORLD_SIZE", "RANK", "LOCAL_RANK", "TORCHELASTIC_RESTART_COUNT"])
@pytest.mark.parametrize("value", ["two", "-1", "9" * 30])
def test_a_variable_that_is_no_number_is_one_line(monkeypatch, name, value):
    for other, number in (("WORLD_SIZE", "2"), ("RANK", "0"), (name, value)):
        monkeypatch.setenv(other, number)
    with pytest.raises(
        UserError, match=f"{name}: '{value}' given; torchrun sets it to a number; without torchrun, type: unset {name}"
    ):
        join_group()


@pytest.mark.parametrize(("size", "rank"), [(3, 5), (3, 3), (2, 2)])
def test_a_rank_beyond_the_number_of_processes_is_one_line(monkeypatch, size, rank):
    monkeypatch.setenv("WORLD_SIZE", str(size))
    monkeypatch.setenv("RANK", str(rank))
    with pytest.raises(UserError, match=f"^RANK: .* is {rank}, but {size} processes .* 0 to {size - 1};.* or unset RANK"):
        join_group()
    monkeypatch.setenv("RANK", str(size - 1))
    assert (join_group().rank, join_group().size) == (size - 1, size)


def test_ctrl_c_ends_a_process_that_waits_for_another_one(programs):
    """It would wait for torch's timeout, in code that notices no signal of Python's."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}
    with programs.start("train", environment={**os.environ, **place}) as running:
        for _ in range(200):  # until the store of the first process is there, and it waits for the second one
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=20) in (130, -signal.SIGINT)
