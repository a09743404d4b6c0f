"""Runs programs of the project many times for the price of no import: forks for each request that comes from a socket.

A request is a message in JSON. {"run": MODULE, "arguments": [...]} runs MODULE.main, and {"code": TEXT} runs Python code, with
{"anew": true} in a process that has imported no file of the project yet, and takes those of its folder first; the process gets
the three standard streams that are sent along, the "folder" and the "environment". The answer is its process id.
{"poll": ID} is answered with its exit code (below 0: the signal that killed it), or with null while it runs. The first request
has the arguments of `session.set_up`. An answer in text is an error.
"""

import faulthandler
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import NoReturn

import session

from chargpt.program import run_program

CHANNEL = 3
# What the programs import late, which a fork has then imported.
LATER = (
    "train",
    "sample",
    "jinja2",
    "chargpt.pages.report_page",
    "chargpt.session.tensorboard",
    "chargpt.sampling.loaded_model",
)
OURS = {"chargpt", "train", "sample", "model", "PIL", "jinja2"}  # and the packages that the project imports late
TESTS = str(Path(__file__).parent)


def run_anew(code: str) -> int:
    """Run code as a new process does, but for what Python and torch have imported."""
    for name, module in [*sys.modules.items()]:
        if name.split(".")[0] in OURS or str(getattr(module, "__file__", "")).startswith(TESTS):
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


def serve(channel: socket.socket) -> NoReturn:
    """Answer the requests of this channel in a fork of the tests, until they close it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest, whose end is the end of this server
    faulthandler.disable()
    channel = socket.socket(fileno=os.dup2(channel.detach(), CHANNEL))
    os.closerange(CHANNEL + 1, 2**16)  # of pytest, which waits until nobody has them open
    codes: dict[int, int] = {}
    try:
        while (received := socket.recv_fds(channel, 2**20, 3))[0]:
            channel.send(json.dumps(answer_to(json.loads(received[0]), received[1], codes)).encode())
    except Exception:
        channel.send(json.dumps(traceback.format_exc()).encode())
    os._exit(0)


def answer_to(request: dict, streams: list[int], codes: dict[int, int]) -> int | None:
    """What the request asks for is done; `codes` are the exit codes of the programs that have ended."""
    if "root" in request:
        session.set_up(**{**request, "root": Path(request["root"])})
        for module in LATER:
            importlib.import_module(module)
    elif "poll" not in request:
        if (program := os.fork()) == 0:
            os.close(CHANNEL)
            child(request, streams)
        for stream in streams:
            os.close(stream)
        return program
    elif (program := request["poll"]) not in codes:
        found, status = os.waitpid(program, os.WNOHANG)
        if found:
            codes[program] = os.waitstatus_to_exitcode(status)
    return codes.get(request.get("poll"))
