"""A command line whose every mistake is one line that says what to do."""

import argparse
import difflib
import re
from collections.abc import Callable
from typing import NoReturn

from chargpt.errors import UserError


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
