"""Functions of the library: a wrong keyword is a TypeError that names the right one, and a UserError speaks of arguments."""

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, TypeVar, get_type_hints

from chargpt.aliases import ALIASES
from chargpt.errors import Message, Option, nearest, python_errors
from chargpt.settings import KEYS

F = TypeVar("F", bound=Callable[..., Any])


def named(function: F) -> F:
    """`function`, which takes only the keywords that it names. In place of **options, which are an Unpack of `keywords` of
    option_table.py, a notebook shows the options."""
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
    ours, places = ALIASES.get(name, name), {argument: argument for argument in arguments}
    if "settings" in arguments:
        places = {key.rpartition(".")[2]: f"settings={{{key!r}: ...}}" for key in reversed(KEYS)} | places
    ours = ours.pieces[0] if isinstance(ours, Message) else ours
    word = (ours.name if isinstance(ours, Option) else str(ours)).rpartition(".")[2]
    return nearest(word, places, otherwise=f"use {', '.join(arguments)}", cutoff=0.7)
