"""Starting a program: what has to happen before torch is imported, which takes a second or two."""

import gc
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import ModuleType

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # glibc's malloc.h
# How long a thread of OpenMP spins before it sleeps, in its library's units, unless the user decides: reads of a variable in
# libgomp, which torch has on Linux, and milliseconds in LLVM's and Intel's. The libraries' own values are 300,000 and 200. On a
# busy machine, a step of 0.1M parameters takes three times as long with the first values as with the second; on an idle one, a
# tenth less.
SPINS = {"GOMP_SPINCOUNT": ("10000", "1000"), "KMP_BLOCKTIME": ("1", "0")}
RUNNING = "/proc/loadavg"  # on Linux


def launch(program: str, *, options: str | None = None, trains: bool = False, arguments: Sequence[object] = ()) -> None:
    """Import the module `program`, run its `main(*arguments)` and end the process with its exit code. The module `options`
    checks the command line first, and what that returns is done meanwhile; `main` is told when all `started`. One that `trains`
    keeps its memory."""
    started = time.perf_counter()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started the program with SIGINT ignored
    from chargpt.interrupt import ending_at_once
    from chargpt.program import run_program

    if trains:
        let_threads_sleep()

    def run() -> int:
        meanwhile = None if options is None else importlib.import_module(options).check_command_line()
        with ending_at_once():  # an import that is interrupted may leave half a module
            module = import_program(program, meanwhile=meanwhile)
        if trains:
            keep_freed_memory()
        return module.main(*arguments) if meanwhile is None else module.main(*arguments, started=started)

    sys.exit(run_program(run))


def import_program(name: str, *, meanwhile: Callable[[], None] | None = None) -> ModuleType:
    """The module of this name, which takes a second to import, with torch; `meanwhile` is done in a thread."""
    gc.disable()  # imports leave no garbage, and looking for some takes a tenth of their time
    thread = threading.Thread(target=meanwhile, daemon=True)
    thread.start()
    module = importlib.import_module(name)
    thread.join()
    gc.freeze()  # what is imported stays: no later collection looks at it again
    gc.enable()
    return module


def command() -> None:
    """`chargpt VERB ...` of an installed package, and `python -m chargpt VERB ...`. A training begins as by train.py."""
    if sys.argv[1:2] == ["train"]:
        del sys.argv[1]
        launch("chargpt.commands.train", options="chargpt.planning.ahead", trains=True)
    launch("chargpt.__main__")


def let_threads_sleep() -> None:
    """Let threads that wait for others sleep soon, since on a busy machine they take the processors from those. Call it before
    torch is imported."""
    try:
        with open(RUNNING) as file:
            others = int(file.read().split()[3].partition("/")[0]) - 1
    except (OSError, ValueError, IndexError):  # another system
        others = 0
    if not {"OMP_WAIT_POLICY", "KMP_LIBRARY"} & os.environ.keys():
        for name, values in SPINS.items():
            os.environ.setdefault(name, values[2 * others >= (os.cpu_count() or 1)])


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for the next step, for the rest of the process: otherwise each step waits for thousands of
    new pages, a tenth of its time at ten million parameters."""
    import ctypes  # not for every program
    import platform

    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
