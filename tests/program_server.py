"""Runs programs of the project many times for the price of one import: forks for each request that comes from a socket.

A request is a message in JSON. {"run": MODULE, "arguments": [...]} runs MODULE.main, and {"code": TEXT} runs Python code, with
{"anew": true} in a process that has imported no file of the project yet, and takes those of its folder first; the process gets
the three standard streams that are sent along, the "folder" and the "environment". The answer is its process id.
{"poll": ID} is answered with its exit code (below 0: the signal that killed it), or with null while it runs.
"""

import importlib
import json
import os
import signal
import socket
import sys
import traceback
from pathlib import Path

import jinja2  # noqa: F401  so that a fork has everything imported
from session import set_up

import sample  # noqa: F401
import train  # noqa: F401
from chargpt.pages import report_page  # noqa: F401
from chargpt.program import run_program
from chargpt.sampling import loaded_model, sample_writer  # noqa: F401
from chargpt.session import tensorboard  # noqa: F401

OURS = {"chargpt", "train", "sample", "model", "session", "PIL", "jinja2"}  # and the packages that the project imports late


def run_anew(code: str) -> int:
    """Run code as a new process does, but for what Python and torch have imported."""
    for name in [name for name in sys.modules if name.split(".")[0] in OURS]:
        del sys.modules[name]
    sys.path.insert(0, os.getcwd())
    try:
        exec(code, {"__name__": "__main__"})
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def child(request: dict, streams: list[int]) -> None:
    """Become the program."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)  # or a program could not close its output
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup, for example, ignores it
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    code = 99
    try:
        if request.get("anew"):
            code = run_anew(request["code"])
        elif "code" in request:
            code = run_program(lambda: exec(request["code"], {"__name__": "__main__"}) or 0)
        else:
            code = run_program(lambda: importlib.import_module(request["run"]).main(request["arguments"]))
        sys.stdout.flush()
    except SystemExit as ended:
        code = ended.code
    finally:
        os._exit(code)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest, whose end is the end of this server
    number, root, precision, step = sys.argv[1:]
    set_up(root=Path(root), precision=precision or None, step=step or None)
    channel, codes = socket.socket(fileno=int(number)), {}
    while True:
        message, streams, _, _ = socket.recv_fds(channel, 2**20, 3)
        if not message:
            return
        request = json.loads(message)
        if "run" in request or "code" in request:
            answer = os.fork()
            if answer == 0:
                channel.close()
                child(request, streams)
            for stream in streams:
                os.close(stream)
        else:
            pid = request["poll"]
            if pid not in codes:
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    codes[pid] = os.waitstatus_to_exitcode(status)
            answer = codes.get(pid)
        channel.send(json.dumps(answer).encode())


if __name__ == "__main__":
    main()
