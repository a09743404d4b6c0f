"""A program from its first line to its exit code: standard streams, errors, and what is told of them."""

import contextlib
import errno
import io
import os
import re
import sys
import textwrap
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TextIO

from chargpt.errors import FULL, Failed, NoMemory, NoSpace, NotWritten, Option, Problem, what_to_do
from chargpt.formatting import shown
from chargpt.project import is_checkout
from chargpt.screen import screen

LIBRARY = re.compile(r"\.so\b|\.dylib\b|DLL")  # in the error of a package whose compiled part cannot be loaded
OUT_OF_MEMORY = re.compile(r"out of memory|(can't|tried to) allocate")  # in a RuntimeError of torch


def run_program(main: Callable[[], int]) -> int:
    """Run `main` and return the exit code. A `UserError`, an `OSError` or lack of memory is one line and exit code 2."""
    _make_streams_safe()
    code = 0
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (`| head`) has closed the pipe
        pass
    except KeyboardInterrupt:
        code = 130
        with contextlib.suppress(OSError):
            print("stopped", file=sys.stderr)
    except Exception as error:
        code, problem = 2, _output_problem(error) or problem_of(error)
        if problem is None:
            raise
        with contextlib.suppress(OSError):
            screen().error(problem)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # into the null device: the interpreter's last flush would change the exit code
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def problem_of(error: BaseException) -> Problem | None:
    """What to tell the user about an error that only the user can solve; None for any other error."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, ModuleNotFoundError):
        return _missing_package(error.name or "")
    if isinstance(error, ImportError) and LIBRARY.search(str(error)):
        what = "it is installed, but not loaded: free some memory, or install its package (such as torch) again"
        return Failed(f"{error}; {what}")
    if isinstance(error, OSError):
        what = f"{shown(error.filename)}: {error.strerror}" if error.filename else str(error)
        return (NoSpace if error.errno in FULL else Failed)(f"{what}; {what_to_do(error)}")
    if type(error).__name__ == "AcceleratorError":  # of torch, which need not be loaded
        detail = str(error).partition("\n")[0]
        again = ("; start again, a training with ", Option("resume", True), ", and if it fails again, add ")
        return Failed(f"GPU: it has failed ({detail})", *again, Option("device", "cpu"))
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(str(error))):
        detail = textwrap.shorten(str(error).partition("\n")[0], 200, placeholder=" ...") or "none left"
        smaller = "a smaller model, fewer samples, or in training a smaller train.batch_size with a larger train.accumulate"
        return NoMemory(f"memory: there is not enough ({detail}); use {smaller}")
    return None


def _output_problem(error: Exception) -> Problem | None:
    """What to tell of a standard output that cannot be written; None for any other error."""
    if not isinstance(error, OSError) or error.filename or error.errno not in (errno.ENOSPC, errno.EIO):
        return None
    try:
        print(flush=True)  # the error does not say which file it is about; Python has dropped what it could not write
    except OSError as again:
        what = "send it to a file on another disk, or to a program that reads it"
        return NotWritten.of(again, f"standard output: {again.strerror}; {what}")
    return None


def _missing_package(module: str) -> Problem | None:
    """What to tell of a package that this interpreter lacks; None if the module is one of ours."""
    package = module.partition(".")[0]
    if package in ("", "chargpt", "model", "train", "sample"):
        return None
    root = Path(__file__).resolve().parents[1]
    other = [path for path in (root / ".venv/bin/python", root / ".venv/Scripts/python.exe") if path.exists()]
    if other and not os.path.samefile(sys.prefix, root / ".venv"):
        return Failed(f"{package}: not installed for {sys.executable}; use {shown(other[0])} instead")
    wanted = "-r requirements.txt" if is_checkout() else "--upgrade chargpt"
    return Failed(f"{package}: not installed for {sys.executable}; run {sys.executable} -m pip install {wanted}")


def _make_streams_safe() -> None:
    """Let a program read and print any character in any locale, and run without standard streams: a closed one becomes the null
    device, or messages would go into the next file. Without newline="\\n", Windows would write two characters for one."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            null = open(os.devnull, mode)  # at the lowest free number, which is its own
            os.set_inheritable(null.fileno(), True)
            setattr(sys, name, null)
        elif name != "stdin":
            stream.reconfigure(encoding="utf-8", errors="replace", newline="\n")
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")


class Stream:
    """A text stream that writes into another one in its own way."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class BestEffortStream(Stream):
    """Drops what cannot be written, because the reader has gone or the disk is full."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


@contextlib.contextmanager
def best_effort_output() -> Any:
    """Within this block, a closed terminal, a broken pipe or a full disk never ends the program."""
    with contextlib.redirect_stdout(BestEffortStream(sys.stdout)), contextlib.redirect_stderr(BestEffortStream(sys.stderr)):
        yield


def best_effort_messages() -> AbstractContextManager[object]:
    """Within this block, a standard error that cannot be written never ends the program; its standard output still can."""
    return contextlib.redirect_stderr(BestEffortStream(sys.stderr))
