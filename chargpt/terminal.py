"""A user's mistake, and how a program says so: one line, exit code 2, no traceback."""

import argparse
import contextlib
import difflib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TextIO


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
    """Run `main`; turn a `UserError`, an `OSError` or a lack of memory into one line on stderr and exit code 2."""
    _make_streams_safe()
    try:
        code = main()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader (`| head`) has seen enough. Give the interpreter's last flush somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except UserError as error:
        message = str(error)
    except OSError as error:
        what = f"{shown(error.filename)}: {error.strerror}" if error.filename else str(error)
        message = f"{what}; check the path, its permissions and the room on its disk"
    except (MemoryError, RuntimeError) as error:  # torch's is a RuntimeError, on the CPU one without a name of its own
        if not (isinstance(error, MemoryError) or re.search(r"out of memory|(can't|tried to) allocate", str(error))):
            raise
        message = (
            f"memory: there is not enough of it ({str(error).strip().partition(chr(10))[0][:120] or 'none left'}); use a smaller "
            "model, fewer samples, or in training a smaller train.batch_size and more train.accumulate"
        )
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    print(f"error: {one_line(message)}", file=sys.stderr)
    return 2


def _make_streams_safe() -> None:
    """A C locale must not end a program that prints 中, nor a closed stream one that prints at all."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))
        else:
            stream.reconfigure(encoding="utf-8", errors="replace")


class Forgiving:
    """A stream whose reader may leave, or whose disk may be full: what cannot be written is dropped, and nothing ends by it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


class Parser(argparse.ArgumentParser):
    """argparse, strict about abbreviations, raising UserError instead of printing its usage and leaving."""

    def __init__(self, **settings: object) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ")
        _, unknown, words = message.partition("unrecognized arguments: --")
        if unknown:
            raise UserError(f"--{words}: no such option; {self._nearest(re.split('[ =]', words)[0])}")
        if message.endswith("expected one argument"):
            raise UserError(f"{message}; if its value begins with a dash, write {message.split(':')[0]}=VALUE")
        raise UserError(message if "; use " in message else f"{message}; see {self.prog} --help")

    def _nearest(self, word: str) -> str:
        known = [option.removeprefix("--") for action in self._actions for option in action.option_strings]
        close = [option for option in known if option.startswith(word)] or difflib.get_close_matches(word, known, n=1)
        return f"did you mean --{close[0]}?" if close else f"see {self.prog} --help"


def whole_number(least: int) -> Callable[[str], int]:
    """An argparse type: a whole number of `least` or more, of at most 18 digits."""

    def parse(text: str) -> int:
        if re.fullmatch(r"[+-]?[0-9]{1,18}", text) and int(text) >= least:
            return int(text)
        raise argparse.ArgumentTypeError(f"{text!r} given; use a whole number of {least} or more")

    return parse


def number(text: str) -> float:
    """An argparse type; what range it lies in is for its owner to check."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} given; use a number") from None


def numbers(text: str) -> list[float]:
    """An argparse type: one number, or several with commas between them."""
    return [number(part) for part in text.split(",")]
