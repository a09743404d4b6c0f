"""A process that is killed in the middle of an exchange is missed soon; one that is slow or has finished early is not."""

import contextlib
import os
import signal
import socket
import time

import pytest

GROUP = """
import os, signal, threading
import torch
from chargpt.parallel.processes import join_group

def stop_in(seconds):
    threading.Timer(seconds, os.kill, [os.getpid(), signal.SIGSTOP]).start()

with join_group() as group:
"""


@contextlib.contextmanager
def started(programs, *, size: int, code: str):
    """That many processes, each as if on a machine of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": str(size)}
    with contextlib.ExitStack() as stack:
        environments = [{**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": "0"} for rank in range(size)]
        yield [stack.enter_context(programs.start(code=GROUP + code, environment=each)) for each in environments]


def wait_until_stopped(process) -> None:
    """The state is that of Linux; elsewhere, a second is enough."""
    end = time.monotonic() + (20 if os.path.exists("/proc/self/stat") else 1)
    while time.monotonic() < end:
        with contextlib.suppress(OSError), open(f"/proc/{process.pid}/stat") as status:
            if ") T " in status.read():
                return
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("exchange", "victim"),
    [
        ("group.reduce(vector, [cuts])", 0),
        ("group.share(vector, [cuts])", 1),
        ("group.broadcast(vector)", 0),
        ("group.broadcast(vector)", 1),
        ("group.collect(vector[cuts[group.rank] : cuts[group.rank + 1]], cuts)", 0),
    ],
)
def test_the_loss_of_a_process_in_the_middle_of_an_exchange_is_noticed(programs, exchange, victim):
    """It stops first, and is killed when the system has no room for more of what the other one sends."""
    code = f"""
    vector, cuts = torch.zeros(2**24), [0, 2**23, 2**24]
    group.reduce(vector, [cuts])  # its buffer is made here
    if group.rank == {victim}:
        stop_in(0.02)
    while True:
        {exchange}
"""
    with started(programs, size=2, code=code) as processes:
        wait_until_stopped(processes[victim])
        time.sleep(0.2)
        processes[victim].send_signal(signal.SIGKILL)
        other = processes[1 - victim]
        _, err = other.communicate(timeout=40)
        assert other.returncode == 1
        assert f"error: rank {victim} on ".encode() in err and b"has ended without a message" in err


def test_the_last_exchange_of_a_run_may_take_long_for_some_processes(programs):
    """Those that have nothing to receive finish early. They do not leave, so they do not count as lost."""
    code = """
    cuts = [0, 10, 20, 30, 30 + 2**25]
    own = torch.full((cuts[group.rank + 1] - cuts[group.rank],), float(group.rank))
    group.exchange()
    if group.rank == 3:
        stop_in(0.01)
    whole = group.collect(own, cuts)
    assert whole is None or [whole[cut].item() for cut in cuts[:-1]] == [0, 1, 2, 3]
"""
    with started(programs, size=4, code=code) as processes:
        wait_until_stopped(processes[3])
        time.sleep(6)
        processes[3].send_signal(signal.SIGCONT)
        ended = [(process.communicate(timeout=40)[1], process.returncode) for process in processes]
        assert [code for _, code in ended] == [0] * 4, ended
