"""Error messages of the library: the programs speak of command-line options, the library speaks of arguments."""

import contextlib
import itertools
import operator
import re
import shlex
from collections.abc import Iterator
from numbers import Real

from chargpt.terminal import NUMBER, UserError

GIVEN = re.compile(r"^(?:--|command line: )?([a-z]+(?:[-_.][a-z]+)*): (\S.{0,200}?) given(?:;|, but|, which|,) ")
# Options whose value may follow in a message, and how that value looks there.
VALUED = (
    r"--(run|minutes|config|device|start|init-from|vocab-from|lines|length|unknown) "
    r"((?:'[^']*'|[A-Z]+\b|[\w/.-]*\w))"
)
SECTION = r"(?:model|optim|train|data|checkpoint|runtime)\.[a-z_]+"
# A setting in a sentence. At the beginning of a message, it is where the mistake is.
SETTING = re.compile(rf"(?<= )({SECTION})=([\w.-]*\w)")
# A command: of a program of ours, with its words, or of a module.
COMMAND = re.compile(r"python (?:(train|sample)\.py((?: (?:'[^']*'|[^\s;()']+))*)|-m [^;()]+)")
# A command of a verb that has no call of Python: it stays a command of the shell.
VERB = re.compile(r"\b(?:python -m chargpt|chargpt(?= (?:import|export|score|text|runs|starts|report|--)))[^;()]*")
# The same programs, as an installed package names them.
INSTALLED = re.compile(r"\bchargpt (train|sample)\b")
# Options of train.py that are arguments of chargpt.train and have a value.
CALLED = ("--run", "--minutes", "--epochs", "--config", "--device", "--start", "--init-from", "--vocab-from")
# Words of a sentence, after an option without a value.
WORDS = "and or given is with which from if out gives decides names sets has replaces".split()


def in_python(message: str) -> str:
    """`message` with arguments of Python in place of command-line options: `temperature=-1: use ...`."""
    verbs = VERB.findall(message)
    message = INSTALLED.sub(r"python \1.py", VERB.sub("\0", message))
    message = GIVEN.sub(lambda match: f"{match[1].replace('-', '_')}={_value(match[2])}: ", message)
    message = message.replace(", - for standard input", "")
    message = re.sub(r"--resume (?=--run )", "--resume, ", message)
    message = re.sub(VALUED, _argument, message)
    message = message.replace("--resume", "resume=True")
    message = SETTING.sub(lambda match: f"settings={{{match[1]!r}: {_literal(match[2])}}}", message)
    message = re.sub(r"('|\d|\bTrue) (?=(?:run|settings|init_from|vocab_from|start|minutes)=)", r"\1, ", message)
    message = re.sub(r"--([a-z]+(?:-[a-z]+)*)", lambda match: match[1].replace("-", "_"), message)
    message = re.sub(r"\b(?:python )?train\.py TEXT\b", "chargpt.train(text)", message)
    message = re.sub(r"\b(?:python )?train\.py\b(?=[ ,;]|$)", "chargpt.train", message)
    message = re.sub(r"\bTEXT\b", "text", message)
    return re.sub("\0", lambda _: verbs.pop(0), message)


def notice_in_python(line: str) -> str:
    """A notice of train.py with calls of Python in place of commands, and arguments in place of options."""
    line = INSTALLED.sub(r"python \1.py", line)
    calls = [_call(match) for match in COMMAND.finditer(line)]
    between = map(in_python, COMMAND.sub("\0", line).split("\0"))
    return "".join(text for pair in itertools.zip_longest(between, calls, fillvalue="") for text in pair)


def _call(match: re.Match) -> str:
    """A command as a call of Python; the command as it is if there is no such call."""
    program, words = match[1], shlex.split(match[2] or "")
    if program is None:
        return match[0]
    if program == "sample":
        return f"chargpt.load({words[0]!r}).generate()" if len(words) == 1 else match[0]
    texts: list[str] = []
    arguments: list[str] = []
    settings: list[str] = []
    given = iter(words)
    for word in given:
        if word == "--resume":
            arguments.append("resume=True")
        elif word.partition("=")[0] in CALLED:
            name, equals, value = word.partition("=")
            arguments.append(f"{name[2:].replace('-', '_')}={_literal(value if equals else next(given, ''))}")
        elif word.startswith("--"):
            return match[0]
        elif re.match(f"{SECTION}=", word):
            name, _, value = word.partition("=")
            settings.append(f"{name!r}: {_literal(value)}")
        else:
            texts.append(repr(word))
    text = texts if len(texts) < 2 else [f"[{', '.join(texts)}]"]
    last = [f"settings={{{', '.join(settings)}}}"] if settings else []
    return f"chargpt.train({', '.join([*text, *arguments, *last])})"


def _literal(word: str) -> str:
    """A word of a command line as Python writes it."""
    if word in ("true", "false"):
        return word.capitalize()
    return word if NUMBER.fullmatch(word) or word == "M" else repr(word)  # M stands for a number


def _argument(match: re.Match) -> str:
    name, value = match[1].replace("-", "_"), match[2]
    if value in WORDS:
        return f"{name} {value}"
    is_written = value in ("M", "N") or value.startswith("'")
    return f"{name}={value if is_written else _literal(value)}"


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
