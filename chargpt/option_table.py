"""A table of options: a frozen record, whose fields are options of a program, with what each takes and what it is for.

All about an option is made from its entry: the parser, --help, the checks, the keywords of the library, which editors see in
`arguments.pyi`, and the reference pages. Importing this imports neither torch nor numpy: --help is answered at once.
"""

import argparse
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import InitVar, field
from numbers import Real
from typing import Any, NamedTuple, TypedDict, TypeVar, get_type_hints

from chargpt.errors import Given, Message, Option, UserError, flag, join, nearest, python_errors
from chargpt.settings import KEYS, NUMBER, WHOLE_NUMBER

SMALLEST, LARGEST = 5e-324, sys.float_info.max  # of the numbers above 0
F = TypeVar("F", bound=Callable[..., Any])
PathLike = str | os.PathLike[str]


class Values(NamedTuple):
    """The values that an option takes."""

    use: str = ""  # what a message asks for
    checked: Callable[[Any], Any] = lambda value: value  # a value as it is kept. Raises ValueError or TypeError
    parse: Callable[[str], Any] = str  # a word of the command line, as an argparse type does
    metavar: str = ""  # in --help, unless the option has another
    takes: Any = None  # the type of the keyword, if it is not that of the field

    def read(self, word: str) -> Any:
        """An argparse type: a word of the command line, as it is kept."""
        try:
            return self.checked(self.parse(word))
        except (TypeError, ValueError, OverflowError):
            raise argparse.ArgumentTypeError(f"{word!r} given; use {self.use}") from None


class Entry(NamedTuple):
    """What is beside the field of an option."""

    help: str
    section: str  # of --help
    default: Any
    values: Values
    metavar: str  # empty: a switch
    keywords: Sequence[str] = ()  # names of records in arguments.pyi: functions of the library that take it
    setting: str = ""  # the section.key that it sets, if that is all it does
    excludes: str = ""  # options, and settings as section.key, with which it cannot be given
    since: str = ""  # why not; empty: either may be left out
    needs: str = ""  # options of which one has to be given with it
    without: str = ""  # what a message says if none is
    off: float | None = None  # of a sampling rule: the value with which it does nothing
    c: str = ""  # of a sampling rule: the type of its value in decode.c, if it has a copy there
    add: Mapping[str, Any] = {}  # for argparse's add_argument


def typed(text: str) -> float | str:
    """An argparse type: a number; anything else stays a text, which the check of the option refuses."""
    if WHOLE_NUMBER.fullmatch(text) and len(text) <= 100:  # a float has fewer digits
        return int(text)
    return float(text) if NUMBER.fullmatch(text) else text


def number(least: float, most: float, use: str, parse: Callable[[str], Any] = typed, kind: type = float) -> Values:
    """Numbers of this `kind` from `least` to `most`."""

    def checked(value: Any) -> Any:
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not is_number or (taken := kind(value)) != value or not least <= taken <= most:  # a float32 has no LARGEST
            raise ValueError
        return taken

    return Values(use, checked, parse, "N")


def whole(least: int, *, most: int = 10**18) -> Values:
    """Whole numbers from `least` to `most`."""
    use = f"a whole number of {least} or more" if most == 10**18 else f"a whole number from {least} to 2^63 - 1"
    return number(least, most, use, kind=int)


def one_of(*choices: str) -> Values:
    use, metavar = f"one of {', '.join(choices)}", f"{{{','.join(choices)}}}"
    return Values(use, lambda value: choices[choices.index(value)], metavar=metavar)


def text(use: str, metavar: str) -> Values:
    return Values(use, lambda value: "" + value, metavar=metavar)  # TypeError for what is no str


SWITCH = Values("True or False", lambda value: (False, True)[(False, True).index(value)])
TEXT = text("a str", "TEXT")


def check(name: str, value: Any, values: Values) -> Any:
    """The value of an option, as it is kept. Raises UserError."""
    try:
        return values.checked(value)
    except UserError:
        raise
    except (TypeError, ValueError, OverflowError, re.error) as error:
        use = f"correct this regular expression: {error}" if isinstance(error, re.error) else f"use {values.use}"
        raise UserError(Given(name, value), use) from None


def option(section: str, default: Any, values: Values = SWITCH, metavar: str = "", **beside: Any) -> Callable[[str], Any]:
    """A function that makes the field of an option from its help text; see `Entry`."""
    given = (section, default, values, metavar or values.metavar)
    return lambda says: field(default=default, metadata={"option": Entry(says, *given, **beside)})


def entries(record: Any) -> dict[str, Entry]:
    """The options of a table, or of a record of one, by name."""
    return {name: one.metadata["option"] for name, one in record.__dataclass_fields__.items() if one.metadata}


def add_options(parser: argparse.ArgumentParser, table: Mapping[str, Entry], *, sections: Mapping[str, str]) -> None:
    """Add the options of these `sections`, {section: its title}. What is not given is not in the result."""
    groups = {name: parser.add_argument_group(title) if title else parser for name, title in sections.items()}
    for name, entry in table.items():
        if entry.section in groups:
            form = {"metavar": entry.metavar, "type": entry.values.parse} if entry.metavar else {"action": "store_true"}
            more = {**form, **entry.add, "help": entry.help, "default": argparse.SUPPRESS}
            groups[entry.section].add_argument(flag(name), dest=name, **more)


def check_fields(record: Any) -> None:
    """Replace each option of `record` by its value as it is kept. Raises UserError."""
    for name, entry in entries(record).items():
        if (value := getattr(record, name)) is not entry.default:
            object.__setattr__(record, name, check(name, value, entry.values))


def check_together(table: Mapping[str, Entry], gives: Callable[[str], Option | None]) -> None:
    """Raise UserError for an option that excludes others, or needs one that is not there. `gives` says how one is given."""
    asked = [(option, entry) for name, entry in table.items() if (option := gives(name)) is not None]
    for option, entry in asked:
        given = [other for other in map(gives, entry.excludes.split()) if other is not None]
        if given and not entry.since:
            raise UserError(option, ": ", given[0], " given as well; leave out one of the two")
        if given:
            also = join(", ", given)
            raise UserError(option, ": cannot be used with ", also, f", since {entry.since}; leave out ", also)
    for option, entry in asked:
        if entry.needs and not any(map(gives, entry.needs.split())):
            raise UserError(option, f": {entry.without}")


def keywords(name: str, table: Any, make: Any = TypedDict) -> Any:
    """The record `name` of arguments.pyi: the options of `table` that functions of the library take, and their `defaults`."""
    hints = {key: hint.type if isinstance(hint, InitVar) else hint for key, hint in get_type_hints(table).items()}
    taken = {key: entry for key, entry in entries(table).items() if name in entry.keywords}
    record = make(name, {key: entry.values.takes or hints[key] for key, entry in taken.items()}, total=False)
    record.defaults = {key: entry.default for key, entry in taken.items()}
    return record


def named(function: F) -> F:
    """`function` with the keywords that it names, which a notebook shows; a TypeError for another one names the right one."""
    signature, kind = inspect.signature(function), inspect.Parameter.KEYWORD_ONLY
    shown = [each for each in signature.parameters.values() if each.name != "options"]
    if len(shown) < len(signature.parameters):
        (record,) = signature.parameters["options"].annotation.__args__
        hints = get_type_hints(record)
        shown += [inspect.Parameter(name, kind, default=record.defaults[name], annotation=hints[name]) for name in hints]
    known = [each.name for each in shown if each.name != "self"]

    @functools.wraps(function)
    def call(*given: Any, **keywords: Any) -> Any:
        for name in keywords:
            if name not in known:
                what = f"{function.__name__}() got an unexpected keyword argument {name!r}"
                raise TypeError(f"{what}; {right_name(name, known)}")
        with python_errors():
            return function(*given, **keywords)

    call.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def right_name(name: str, arguments: Collection[str]) -> str:
    """What to write in place of the argument `name`, which a function with these `arguments` does not have."""
    from chargpt.aliases import ALIASES  # only a mistake needs the names of others

    ours, places = ALIASES.get(name, name), {argument: argument for argument in arguments}
    if "settings" in arguments:
        places = {key.rpartition(".")[2]: f"settings={{{key!r}: ...}}" for key in reversed(KEYS)} | places
    ours = ours.pieces[0] if isinstance(ours, Message) else ours
    word = (ours.name if isinstance(ours, Option) else str(ours)).rpartition(".")[2]
    return nearest(word, places, otherwise=f"use {', '.join(arguments)}", cutoff=0.7)
