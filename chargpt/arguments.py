"""Error messages of the library: the programs speak of command-line options, the library speaks of arguments."""

import contextlib
import operator
import re
from collections.abc import Iterator
from numbers import Real

from chargpt.terminal import UserError

GIVEN = re.compile(r"^(?:--|command line: )?([a-z]+(?:[-_.][a-z]+)*): (\S.{0,200}?) given(?:;|, but|, which|,) ")
# Options whose value may follow in a message, and how that value looks there.
VALUED = r"--(run|minutes|config|device|init-from|vocab-from|lines|length|unknown) ((?:'[^']*'|[A-Z]+\b|[a-z0-9/._-]*[a-z0-9]))"
WORDS = ("and", "or", "given", "is", "with", "which", "from", "if")  # of a sentence, after an option without a value


def in_python(message: str) -> str:
    """`message` with arguments of Python in place of command-line options: `temperature=-1: use ...`."""
    message = GIVEN.sub(lambda match: f"{match[1].replace('-', '_')}={_value(match[2])}: ", message)
    message = message.replace(", - for standard input", "")
    message = re.sub(r"--resume (?=--run )", "--resume, ", message)
    message = re.sub(VALUED, _argument, message)
    message = message.replace("--resume", "resume=True")
    message = re.sub(r"--([a-z]+(?:-[a-z]+)*)", lambda match: match[1].replace("-", "_"), message)
    message = re.sub(r"\b(?:python )?train\.py TEXT\b", "chargpt.train(text)", message)
    message = re.sub(r"\b(?:python )?train\.py\b(?=[ ,;]|$)", "chargpt.train", message)
    return re.sub(r"\bTEXT\b", "text", message)


def _argument(match: re.Match) -> str:
    name, value = match[1].replace("-", "_"), match[2]
    if value in WORDS:
        return f"{name} {value}"
    return f"{name}={value if value.isupper() else _value(value)}"


def _value(text: str) -> str:
    """A value of a message as Python shows it: text in quotes."""
    is_text = re.fullmatch(r"[A-Za-z][\w.:/-]*", text) and text not in ("None", "True", "False", "nan", "inf")
    return repr(text) if is_text else text


@contextlib.contextmanager
def python_errors() -> Iterator[None]:
    """Raise a ValueError of this block, of the same type, with its message as of `in_python`."""
    try:
        yield
    except ValueError as error:
        message = str(error)
        told = in_python(message)
        if told == message:
            raise
        raise UserError(told) from None


def check_number(name: str, value: object) -> None:
    """Raise UserError unless `value` is a number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise UserError(f"{name}={value!r}: use a number")


def whole_number(name: str, value: object, *, least: int = 0, most: int = 10**18) -> int:
    """`value` as an int. Raises UserError unless it is a whole number of `least` or more, and less than `most`."""
    try:
        number = least - 1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if least <= number < most:
        return number
    allowed = f"of {least} or more" if number < least else f"from {least} to {most - 1}"
    raise UserError(f"{name}={value!r}: use a whole number {allowed}")
