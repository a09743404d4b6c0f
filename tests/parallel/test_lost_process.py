"""A process that is lost ends the others: at once where its connection closes, and otherwise by torch's timeout."""

import contextlib
import os
import signal
import socket
import time

import pytest

GROUP = """
import os, signal
from datetime import timedelta
import torch
from chargpt.training.join import join_group

group = join_group()
group.timeout = timedelta(seconds=TIMEOUT)
with group:
    vector = torch.ones(2**20)
    for step in range(10**9):
        with group.summing(vector):
            if step == 5 and group.rank in VICTIMS:
                END
        group.read(vector[-2:].tolist())
"""


@contextlib.contextmanager
def started(programs, *, timeout: int, victims: list[int], end: str):
    """Two processes, without a torchrun that ends one if the other fails."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    code = GROUP.replace("TIMEOUT", str(timeout)).replace("VICTIMS", str(victims)).replace("END", end)
    with contextlib.ExitStack() as stack:
        environments = [{**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
        yield [stack.enter_context(programs.start(code=code, environment=each)) for each in environments]


@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_that_is_killed_ends_the_other(programs, victim):
    with started(programs, timeout=60, victims=[victim], end="os.kill(os.getpid(), signal.SIGKILL)") as processes:
        _, err = processes[1 - victim].communicate(timeout=100)
        assert processes[1 - victim].returncode == 1
        assert err.startswith(b"error: another process is lost") if victim == 1 else err == b"", err


def test_a_process_that_hangs_ends_the_other_at_the_timeout(programs):
    began = time.monotonic()
    with started(programs, timeout=4, victims=[1], end="os.kill(os.getpid(), signal.SIGSTOP)") as processes:
        _, err = processes[0].communicate(timeout=60)
        assert processes[0].returncode == 1 and b"error: another process is lost (Timed out" in err, err
        assert time.monotonic() - began > 4
        processes[1].send_signal(signal.SIGKILL)


@pytest.mark.parametrize("victims", [[0], [1], [0, 1]], ids=str)
def test_out_of_memory_is_one_line_of_one_process(programs, victims):
    with started(programs, timeout=60, victims=victims, end="torch.empty(2**50)") as processes:
        said = [process.communicate(timeout=60)[1] for process in processes]
        assert [process.returncode for process in processes] == [2 if rank == victims[0] else 1 for rank in range(2)], said
        who = f"process {victims[0]} (the first is 0): " if victims[0] else ""
        assert said[victims[0]].startswith(f"error: {who}memory: there is not enough".encode())
        assert said[1 - victims[0]] == b""
