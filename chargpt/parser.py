"""The option parser of the programs and verbs: what is wrong with a command line is a UserError."""

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from chargpt.errors import Option, UserError, nearest
from chargpt.project import HOME, set_home


def _check_typed(words: Sequence[str]) -> None:
    """Raise UserError for `words` of a command with the dash or the quotes of a word processor, or quotes that a shell left."""
    for number, word in enumerate(words):
        if dash := re.match(r"[–—−‐‑]+(?=[^\W\d_])", word):
            option = Option(word[dash.end() :].partition("=")[0])
            raise UserError(f"{word}: begins with the dash of a word processor; type ", option)
        close = {"'": "'", "“": "”", "„": "“", "«": "»"}.get(word[:1], word)
        is_cut = not word.endswith(close) and any(other.endswith(close) for other in words[number + 1 :])
        if is_cut or re.fullmatch(r"[a-z]+\.[a-z_]+='.*'", word):
            raise UserError(f'{word}: quotes that this shell does not know; type double quotes: "..."')


class Home(argparse.Action):
    """--home, which every program has: it acts before anything is looked up."""

    def __call__(self, parser: object, namespace: object, folder: Any, option_string: str | None = None) -> None:
        set_home(folder)


class Parser(argparse.ArgumentParser):
    """argparse without abbreviations. It raises UserError instead of printing its usage and leaving."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, exit_on_error=False, **settings)
        what = f"the folder of checkpoints/, data/ and cache/, in which everything is written (the same as {HOME}=DIR)"
        self.add_argument("--home", action=Home, metavar="DIR", default=argparse.SUPPRESS, help=what)

    def parse_known_args(self, *arguments: Any, **more: Any) -> Any:
        """As in argparse. The error for a value of an option is a UserError with that option; our own types say what to do."""
        _check_typed([*map(str, arguments[0] if arguments and arguments[0] is not None else sys.argv[1:])])
        try:
            return super().parse_known_args(*arguments, **more)
        except argparse.ArgumentError as error:
            name, ours = error.argument_name or "", isinstance(error.__context__, argparse.ArgumentTypeError)
            where = Option(name[2:]) if re.fullmatch("--[a-z-]+", name) else name
            takes_any = [action.nargs is action.choices is None for action in self._actions if name in action.option_strings]
            advice = f"see {self.prog} --help"
            if any(takes_any) and error.__context__ is None:  # so the value is missing
                advice = f"if its value begins with a dash, write {name}=VALUE"
            raise UserError(where, ": " * bool(name), error.message, f"; {advice}" * (not ours)) from None

    def error(self, message: str) -> NoReturn:
        _, unknown, words = message.partition("unrecognized arguments: -")
        if unknown:
            from chargpt.aliases import alias

            word = f"-{words.split(' ')[0]}"  # what follows may be values, or words that are right
            option = word.split("=")[0]
            is_typo = f"--{option.lstrip('-')}" in self._option_string_actions  # -minutes
            verb = re.split(r"[ /\\]", self.prog)[-1].strip("'\"").removesuffix(".py")
            if not is_typo and (ours := alias(option, program=verb)):  # of another program
                raise UserError(f"{option}: no such option; did you mean ", ours, "?")
            raise UserError(f"{word}: no such option; {self._nearest(option.lstrip('-'))}")
        raise UserError(f"{message}; see {self.prog} --help")

    def _nearest(self, word: str) -> str:
        known = {option.removeprefix("--"): option for option in sorted(self._option_string_actions)}
        begin = [option for name, option in known.items() if word and name.startswith(word)][: None if len(word) == 1 else 1]
        return f"did you mean {' or '.join(begin)}?" if begin else nearest(word, known, otherwise=f"see {self.prog} --help")
