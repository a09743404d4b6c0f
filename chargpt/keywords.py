"""Functions of the library: a wrong keyword is a TypeError that names the right one, and a UserError speaks of arguments."""

import functools

TYPE_CHECKING = False  # as in typing, whose import takes time
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])


class _Default:
    """A default as a signature shows it."""

    def __repr__(self) -> str:
        return "..."


def named(function: "F") -> "F":
    """`function`, which takes only the keywords that it names, and those of the record of its `**options` if it has one."""
    code, record = function.__code__, function.__annotations__.get("options")  # Unpack of a TypedDict
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    known = [*own, *(record.__args__[0].__annotations__ if record else ())]

    @functools.wraps(function)
    def call(*given: "Any", **keywords: "Any") -> "Any":
        for name in keywords:
            if name not in known:
                what = f"{function.__name__}() got an unexpected keyword argument {name!r}"
                raise TypeError(f"{what}; {right_name(name, [name for name in known if name != 'self'])}")
        from chargpt.errors import python_errors

        with python_errors():
            return function(*given, **keywords)

    if record:
        _show_options(call, record.__args__[0])
    return call  # type: ignore[return-value]


def _show_options(function: "Any", record: type) -> None:
    """A notebook shows the entries of `record` in place of the **options of `function`."""
    import inspect
    from typing import get_type_hints

    signature, kind = inspect.signature(function), inspect.Parameter.KEYWORD_ONLY
    own = [each for each in signature.parameters.values() if each.name != "options"]
    options = [
        inspect.Parameter(name, kind, default=_Default(), annotation=hint) for name, hint in get_type_hints(record).items()
    ]
    function.__signature__ = signature.replace(parameters=[*own, *options])


def right_name(name: str, arguments: "Collection[str]") -> str:
    """What to write in place of the argument `name`, which a function with these `arguments` does not have."""
    import difflib

    from chargpt.aliases import ALIASES
    from chargpt.config import KEYS
    from chargpt.errors import Message, Option

    ours, places = ALIASES.get(name, name), {argument: argument for argument in arguments}
    if "settings" in arguments:
        places = {key.rpartition(".")[2]: f"settings={{{key!r}: ...}}" for key in reversed(KEYS)} | places
    ours = ours.pieces[0] if isinstance(ours, Message) else ours
    word = (ours.name if isinstance(ours, Option) else str(ours)).rpartition(".")[2]
    close = difflib.get_close_matches(word, places, n=1, cutoff=0.7)
    return f"did you mean {places[close[0]]}?" if close else f"use {', '.join(arguments)}"
