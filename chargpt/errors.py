"""A user's mistake, and how a program says so: one line, exit code 2, no traceback."""

import os
import sys
from collections.abc import Callable
from pathlib import Path


class UserError(ValueError):
    """Something only the user can mend. The message reads `where: what was given; what to do`."""


def one_line(text: object) -> str:
    """`text` on a single line, control characters escaped, so that a file name cannot forge a message."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def shown(path: str | Path) -> str:
    """`path` as a person would type it: relative to the working folder when it lies below it."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def run_program(main: Callable[[], int]) -> int:
    """Run `main`; turn a `UserError` or an `OSError` into one line on stderr and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace")  # a C locale must not end a program that prints 中
    try:
        return main()
    except BrokenPipeError:
        # The reader (`| head`) has seen enough. Give the interpreter's last flush somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except UserError as error:
        message = str(error)
    except OSError as error:
        message = f"{shown(error.filename)}: {error.strerror}" if error.filename else str(error)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    print(f"error: {one_line(message)}", file=sys.stderr)
    return 2
