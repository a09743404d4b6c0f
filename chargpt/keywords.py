"""Functions of the library: a wrong keyword is a TypeError that names the right one, and a UserError speaks of arguments."""

import functools

TYPE_CHECKING = False  # as in typing, whose import takes time
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])


def named(function: "F") -> "F":
    """`function`, which takes only the keywords that it names, and those of the record of its `**options` if it has one."""
    code, record = function.__code__, function.__annotations__.get("options")
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

    if record:  # what a notebook shows in place of **options
        import inspect
        from typing import get_type_hints

        shown = [each for each in inspect.signature(function).parameters.values() if each.name != "options"]
        for name, hint in get_type_hints(record.__args__[0]).items():
            shown.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=..., annotation=hint))
        call.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def right_name(name: str, arguments: "Collection[str]") -> str:
    """What to write in place of the argument `name`, which a function with these `arguments` does not have."""
    import difflib

    from chargpt.aliases import ALIASES, Ours

    ours = ALIASES.get(name)
    close = [ours.name] if isinstance(ours, Ours) else difflib.get_close_matches(name, arguments, n=1, cutoff=0.7)
    if close and close[0] in arguments:
        return f"did you mean {close[0]}?"
    if "settings" in arguments and (keys := keys_like(name)):
        return f"did you mean settings={{{keys[0]!r}: ...}}?"
    return f"use {', '.join(arguments)}"


def keys_like(name: str) -> list[str]:
    """The settings that may be meant by `name`, a section.key or a key, which is none."""
    import difflib

    from chargpt.aliases import ALIASES
    from chargpt.config import KEYS

    last = name.rpartition(".")[2]
    ours = ALIASES.get(last, last)
    word = ours.rpartition(".")[2] if isinstance(ours, str) else last
    close = difflib.get_close_matches(word, [key.rpartition(".")[2] for key in KEYS], n=1)
    return [key for key in KEYS if close and key.endswith(f".{close[0]}")]
