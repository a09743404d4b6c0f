"""Starting a program: what has to happen before torch is imported, which takes a second or two.

This module imports almost nothing itself, so that a signal in the first milliseconds is handled as well.
"""

import importlib
import sys

from chargpt.interrupt import ending_at_once


def launch(program: str) -> None:
    """Import the module `program`, run its `main()` and end the process with its exit code."""
    with ending_at_once():  # there is nothing to save yet
        from chargpt.terminal import run_program

        modules = []
        code = run_program(lambda: modules.append(importlib.import_module(program)) or 0)
    sys.exit(code or run_program(modules[0].main))
