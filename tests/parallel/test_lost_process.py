"""A process that is killed while another one sends to it: gloo does not end what the system has not taken whole."""

import os
import signal
import socket
import time

import pytest

EXCHANGE = """
import torch
from chargpt.parallel.processes import join_group

with join_group() as group:
    large, small, half = torch.zeros(2**23), torch.zeros(2**10), 2**22
    group.reduce(small, [[0, 2**9, 2**10]])
    if group.is_first:
        print("joined", flush=True)
    while True:
        {exchange}
"""


@pytest.mark.parametrize(
    "exchange",
    [
        "group.reduce(large, [[0, half, 2 * half]])",
        "group.share(large, [[0, half, 2 * half]])",
        "group.broadcast(large)",
        "group.collect(large[half:], [0, half, 2 * half])",
    ],
)
@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_that_sends_to_one_that_was_killed_notices_it(programs, exchange, victim):
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    starts = [{**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": "0"} for rank in range(2)]
    code = EXCHANGE.format(exchange=exchange)
    with programs.start(code=code, environment=starts[0]) as first, programs.start(code=code, environment=starts[1]) as second:
        assert first.stdout.readline() == b"joined\n"
        dies, lives = (first, second) if victim == 0 else (second, first)
        time.sleep(0.2)
        dies.send_signal(signal.SIGSTOP)  # it takes no more, so the other one is in the middle of sending when it is killed
        time.sleep(0.2)
        dies.send_signal(signal.SIGKILL)
        _, err = lives.communicate(timeout=30)
        assert lives.returncode == 1
        assert f"error: rank {victim} on ".encode() in err and b"has ended without a message" in err
