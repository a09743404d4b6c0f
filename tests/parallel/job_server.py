"""Runs train.py in several processes, as torchrun would, for the price of one import.

Each line on standard input is a job in JSON: `size` processes with these `arguments`, whose output goes to `output`-RANK.
Prints the process ids, and when all have ended their exit codes, as JSON lists by rank. If one process fails, the others get
SIGTERM, as from torchrun.
"""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

import torch.distributed as dist
from session import set_up

import train
from chargpt.parallel.processes import BEGUN, Processes
from chargpt.terminal import run_program


def plain_sum(self: Processes, vector, regions) -> None:
    """The control: torch's own all-reduce, whose order of summing depends on the number of processes."""
    dist.all_reduce(vector)


PORT_DIGITS = 5
LONGEST_SECONDS = 100  # a process that takes longer hangs, and is killed by SIGALRM


def child(rank: int, job: dict, ports: int) -> None:
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started the tests with SIGINT ignored
    signal.alarm(LONGEST_SECONDS)
    port = int(os.read(ports, PORT_DIGITS))
    os.dup2(os.open(job["stdin"], os.O_RDONLY), 0)
    sys.stdin = open(0, closefd=False)
    if job["limit_files"] and rank == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["limit_files"], job["limit_files"]))
    for stream in (1, 2):
        file = os.open(f"{job['output']}-{rank}.{stream}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(file, stream)
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": job["size"], "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    variables |= {"TORCHELASTIC_RESTART_COUNT": job["restarts"], "TORCHELASTIC_USE_AGENT_STORE": "True"}
    os.environ.update({name: str(value) for name, value in variables.items()})
    if job["control"]:
        Processes.reduce = plain_sum
    is_last = rank == job["size"] - 1 and job["last"] is not None
    os._exit(run_program(lambda: train.main(job["last" if is_last else "arguments"])))


def run(job: dict) -> None:
    children, (reading, writing) = [], os.pipe()
    for rank in range(job["size"]):
        children.append(os.fork())
        if children[-1] == 0:
            child(rank, job, reading)
    # The store has threads, whose locks a fork would copy; so it comes after the last fork.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    if job["begun"]:
        store.set(BEGUN, "yes")
    os.write(writing, f"{store.port:{PORT_DIGITS}}".encode() * job["size"])
    os.close(reading)
    os.close(writing)
    print(json.dumps(children), flush=True)
    codes: dict[int, int] = {}
    while len(codes) < len(children):
        pid, status = os.waitpid(-1, 0)
        codes[pid] = os.waitstatus_to_exitcode(status)
        if codes[pid] != 0 and len(codes) == 1:
            time.sleep(0.1)  # torchrun asks ten times a second
            for other in set(children) - codes.keys():
                os.kill(other, signal.SIGTERM)
    print(json.dumps([codes[pid] for pid in children]), flush=True)


def main() -> None:
    root, precision, step = sys.argv[1:]
    set_up(root=Path(root), precision=precision or None, step=step or None)
    print("ready", flush=True)
    for line in sys.stdin:
        run(json.loads(line))


if __name__ == "__main__":
    main()
