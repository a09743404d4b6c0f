"""Starting a program: what has to happen before torch is imported, which takes a second or two.

This module imports almost nothing itself, so that a signal in the first milliseconds is handled as well.
"""

import importlib
import os
import sys

from chargpt.interrupt import ending_at_once

# A thread of OpenMP that waits for the others keeps its core busy for some time, which is fastest on an idle machine. Without
# a limit, a busy machine makes every step wait for threads that are not running: see docs/benchmarks.md, "A busy machine".
WAITING = {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"}  # for gcc's OpenMP in loops, for LLVM's in milliseconds
CHOSEN_BY_USER = ("OMP_WAIT_POLICY", *WAITING)


def launch(program: str) -> None:
    """Import the module `program`, run its `main()` and end the process with its exit code."""
    if not any(name in os.environ for name in CHOSEN_BY_USER):
        os.environ.update(WAITING)
    with ending_at_once():  # there is nothing to save yet
        from chargpt.terminal import run_program

        modules = []
        code = run_program(lambda: modules.append(importlib.import_module(program)) or 0)
    sys.exit(code or run_program(modules[0].main))
