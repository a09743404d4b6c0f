"""Starting a program: what has to happen before torch is imported, which takes a second or two.

This module imports only what every Python has imported already, so that a signal in the first milliseconds is handled as well.
What comes before it, the start of Python itself, is out of reach.
"""

import _signal  # the part of `signal` that is written in C: importing the rest takes milliseconds
import os
import sys


def launch(program: str, *, options: str | None = None) -> None:
    """Import the module `program`, run its `main()` and end the process with its exit code.

    If the module `options` is given, its `check_command_line()` is called first, so that a mistake is reported at once.
    """
    _signal.signal(_signal.SIGINT, _end)  # while `signal` is imported
    open_standard_streams()
    import gc
    import importlib

    from chargpt.interrupt import ending_at_once

    with ending_at_once():  # there is nothing to save yet
        from chargpt.terminal import run_program

        modules = []

        def prepare() -> int:
            if options is not None:
                importlib.import_module(options).check_command_line()
            gc.disable()  # imports leave no garbage, and looking for some takes a tenth of their time
            modules.append(importlib.import_module(program))
            gc.freeze()  # what is imported stays: no later collection looks at it again
            gc.enable()
            return 0

        code = run_program(prepare)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    code = code or run_program(modules[0].main)
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # nothing is left to do: Ctrl-C ends the process without a traceback
    sys.exit(code)


def command() -> None:
    """The command `chargpt` of an installed package."""
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    launch("chargpt.__main__")


def _end(number: int, frame: object) -> None:
    """A signal handler that ends the program at once."""
    try:
        os.write(2, b"stopped\n")
    except OSError:
        pass
    os._exit(128 + number)


def open_standard_streams() -> None:
    """Connect each closed file descriptor from 0 to 2 to the null device.

    Otherwise a file of the run would get this number, and messages for standard error would be written into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # open takes the lowest free number, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)
