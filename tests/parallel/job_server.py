"""Runs train.py in several processes, as torchrun would: a program of the server of programs.

Each line on standard input is a job in JSON: `size` processes with these `arguments`, whose output goes to `output`-RANK.
Prints the process ids, and when all have ended their exit codes and whether one has noted a save, as JSON lists by rank. If one
process fails, the others get SIGTERM, as from torchrun, and SIGKILL after SHUTDOWN_SECONDS.
"""

import hashlib
import json
import os
import resource
import signal
import sys
import time

import torch.distributed as dist

import train
from chargpt.program import run_program
from chargpt.session.session import Session
from chargpt.training.parallel import SAVED

PORT_DIGITS = 5
LONGEST_SECONDS = 180  # a process that takes longer hangs, and is killed by SIGALRM
SHUTDOWN_SECONDS = 10


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
    variables |= {"LOCAL_WORLD_SIZE": job["size"] // job["machines"]}
    os.environ.update({name: str(value) for name, value in variables.items()})
    save = Session.save

    def noting_weights(session: Session) -> None:
        save(session)
        digest = hashlib.sha256(session.trainer.weights.vector.numpy().tobytes()).hexdigest()
        with open(f"{job['output']}-{rank}.weights", "a") as file:
            file.write(f"{session.trainer.progress.step} {digest}\n")

    Session.save = noting_weights
    os._exit(run_program(lambda: train.main(job["arguments"])))


def run(job: dict) -> None:
    children, (reading, writing) = [], os.pipe()
    for rank in range(job["size"]):
        children.append(os.fork())
        if children[-1] == 0:
            child(rank, job, reading)
    # The store has threads, whose locks a fork would copy; so it comes after the last fork.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    if job["saved"]:
        store.set(SAVED, "yes")
    os.write(writing, f"{store.port:{PORT_DIGITS}}".encode() * job["size"])
    os.close(reading)
    os.close(writing)
    print(json.dumps(children), flush=True)
    codes: dict[int, int] = {}
    failed_at = None
    while len(codes) < len(children):
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            codes[pid] = os.waitstatus_to_exitcode(status)
        else:
            time.sleep(0.01)
        others = set(children) - codes.keys()
        if failed_at is None and any(codes.values()):
            failed_at = time.monotonic()
            time.sleep(0.1)  # torchrun asks ten times a second
            for other in others:
                os.kill(other, signal.SIGTERM)
        elif failed_at is not None and time.monotonic() > failed_at + SHUTDOWN_SECONDS:
            for other in others:
                os.kill(other, signal.SIGKILL)
    print(json.dumps([[codes[pid] for pid in children], store.check([SAVED])]), flush=True)


def main(_: list[str]) -> int:
    for line in sys.stdin:
        run(json.loads(line))
    return 0
