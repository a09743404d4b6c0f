"""Programs of the project as child processes that import nothing anew. Needs POSIX."""

import contextlib
import io
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import program_server

ROOT = Path(__file__).parents[1]
PIPE, DEVNULL = subprocess.PIPE, subprocess.DEVNULL
PATIENCE = 180  # seconds for a program to end, on a slow and busy machine


@dataclass(frozen=True)
class Ended:
    """What a program has returned and written."""

    returncode: int
    stdout: bytes
    stderr: bytes


class Program:
    """A process of the server, with the methods of subprocess.Popen that the tests need."""

    def __init__(self, server: "Programs", pid: int, stdin: int | None, stdout: int | None, stderr: int | None) -> None:
        self.server, self.pid, self.returncode = server, pid, None
        self.stdin = None if stdin is None else open(stdin, "wb", buffering=0)
        self.stdout, self.stderr = (None if pipe is None else open(pipe, "rb", buffering=0) for pipe in (stdout, stderr))

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it may be done already
            os.kill(self.pid, number)

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self.server.ask(poll=self.pid)
        return self.returncode

    def wait(self, *, timeout: float = PATIENCE) -> int:
        """The exit code. Raises TimeoutError."""
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise TimeoutError(f"the program has not ended in {timeout} seconds")
            time.sleep(0.005)
        return self.returncode

    def communicate(self, *, timeout: float = PATIENCE) -> tuple[bytes, bytes]:
        """Everything that it still writes, and its exit code in `returncode`. Raises TimeoutError."""
        end, pieces = time.monotonic() + timeout, {pipe: [] for pipe in (self.stdout, self.stderr) if pipe}
        reading = list(pieces)
        while reading:
            ready, _, _ = select.select(reading, [], [], max(0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"the program has not ended in {timeout} seconds")
            for pipe in ready:
                piece = pipe.read(2**16)
                pieces[pipe].append(piece)
                if not piece:
                    reading.remove(pipe)
        self.wait(timeout=timeout)
        return tuple(b"".join(pieces.get(pipe, [])) for pipe in (self.stdout, self.stderr))

    def with_text(self) -> "Program":
        """The same, with text in its pipes."""
        self.stdin = io.TextIOWrapper(self.stdin, encoding="utf-8", write_through=True)
        self.stdout = io.TextIOWrapper(io.BufferedReader(self.stdout), encoding="utf-8")
        return self

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        if self.poll() is None:
            self.send_signal(signal.SIGKILL)
            self.wait()
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()


class Programs:
    """The server: a fork of this process that forks for each of them."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server = os.fork()
        if self._server == 0:
            program_server.serve(theirs)
        theirs.close()

    def ask(self, *, streams: tuple[int, ...] = (), **request: object) -> int | None:
        socket.send_fds(self._channel, [json.dumps(request).encode()], streams)
        answer = json.loads(self._channel.recv(2**16) or '"the server has ended"')
        assert not isinstance(answer, str), answer
        return answer

    def start(
        self,
        *program: str,
        code: str = "",
        anew: bool = False,
        stdin: int = DEVNULL,
        stdout: int = PIPE,
        stderr: int = PIPE,
        folder: Path = ROOT,
        environment: Mapping[str, str] = os.environ,
    ) -> Program:
        """Start `program`, a module with a main() and its arguments, or Python `code`, with `anew` where nothing of the project
        is imported. The streams are as for Popen.
        """
        theirs, ours = [], []
        for number, stream in enumerate((stdin, stdout, stderr)):
            if stream == PIPE:
                read, write = os.pipe()
                theirs.append(write if number else read)
                ours.append(read if number else write)
            else:
                theirs.append(os.open(os.devnull, os.O_RDWR) if stream == DEVNULL else os.dup(stream))
                ours.append(None)
        request = {"code": code, "anew": anew} if code else {"run": program[0], "arguments": program[1:]}
        pid = self.ask(streams=tuple(theirs), folder=str(folder), environment=dict(environment), **request)
        for stream in theirs:
            os.close(stream)
        return Program(self, pid, *ours)

    def run(self, *program: str, timeout: float = PATIENCE, **options: object) -> Ended:
        """Run a program to its end; `options` are those of `start`."""
        with self.start(*program, **options) as running:
            out, err = running.communicate(timeout=timeout)
            return Ended(running.returncode, out, err)

    def beside(self, module: str, *arguments: str, stderr: int) -> Program:
        """As `start` of chargpt/session/python_process.py: calls `run(*arguments)` of a module, with text in its pipes."""
        return self.start(code=f"from {module} import run; run(*{arguments!r})", stdin=PIPE, stderr=DEVNULL).with_text()

    def close(self) -> None:
        os.kill(self._server, signal.SIGKILL)
        os.waitpid(self._server, 0)
