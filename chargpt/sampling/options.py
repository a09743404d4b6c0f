"""How text is written. Each option is stated once, and what is beside it in `Annotated` makes all the rest.

That is the option of sample.py, its line of --help, and its check. The library takes TextOptions and ItemOptions as keywords,
so that editors and type checkers see their types. This file imports neither torch nor numpy: --help and a mistyped option are
answered at once.
"""

import argparse
import math
import random
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass
from numbers import Real
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, Unpack, get_type_hints

from chargpt.errors import Given, Option, UserError
from chargpt.project import command, shell_word
from chargpt.terminal import NUMBER, WHOLE_NUMBER, Parser

MORE_FOR_UNIQUE = 100_000  # characters that --unique may write and remove again
# The groups of --help, in its order.
GROUPS = {
    "": "",
    "prompt": "the prompt",
    "text": "what to write",
    "items": "a run on items (train.py --items) writes items",
    "rules": "how the next character is chosen, in this order",
    "output": "how it is printed",
}


class Kind(NamedTuple):
    """The values that an option takes."""

    parse: Callable[[str], Any] | None = None  # a word of the command line, as an argparse type does
    checked: Callable[[Any], Any] = lambda value: value  # a value as it is kept. Raises ValueError or TypeError
    use: str = ""  # what a message asks for


def typed(text: str) -> float | str:
    """An argparse type: a number; anything else stays a text, which the check of the option refuses."""
    if WHOLE_NUMBER.fullmatch(text) and len(text) <= 20:  # a float has fewer digits
        return int(text)
    return float(text) if NUMBER.fullmatch(text) else text


def whole(least: int, *, most: int = 10**18) -> Kind:
    """Whole numbers from `least` up to below `most`."""

    def checked(value: Any) -> int:
        number: Any = value if isinstance(value, Real) and not isinstance(value, bool) else math.nan  # which is no whole number
        if int(number) != number or not least <= number < most:
            raise ValueError
        return int(number)

    return Kind(typed, checked, f"a whole number of {least} or more")


def real(allowed: Callable[[float], bool], use: str, parse: Callable[[str], Any] = typed) -> Kind:
    """Numbers that are `allowed`."""

    def checked(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, Real) or not allowed(float(value)):
            raise ValueError
        return float(value)

    return Kind(parse, checked, use)


def one_of(*choices: str) -> Kind:
    return Kind(None, lambda value: choices[choices.index(value)], f"one of {', '.join(choices)}")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def pattern(text: Any) -> re.Pattern[str]:
    """A regular expression, in which ^ and $ are the ends of a line; a compiled one stays as it is. An argparse type."""
    try:
        return re.compile(text, re.MULTILINE if isinstance(text, str) else 0)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} given, which is no regular expression: {error}; correct it") from None


def read_escapes(text: str) -> str:
    """An argparse type: text in which \\n is a newline, \\t a tab and \\\\ a backslash. Other backslashes stay."""
    return re.sub(r"\\[nt\\]", lambda found: {r"\n": "\n", r"\t": "\t"}.get(found[0], "\\"), text)


def typed_list(text: str) -> list[float | str]:
    """An argparse type: one number, or several separated by commas."""
    return [typed(part) for part in text.split(",")]


TEXT = Kind(str, _text, "a str")


def check(name: str, value: Any, kind: Kind) -> Any:
    """The value of an option, as it is kept. Raises UserError."""
    try:
        return kind.checked(value)
    except UserError:
        raise
    except (TypeError, ValueError, OverflowError, argparse.ArgumentTypeError):
        raise UserError(Given(name, value), f"use {kind.use}") from None


def _value(name: str, value: Any, one: Field[Any]) -> Any:
    return value if value is one.default else check(name, value, one.metadata["kind"])


def listed(name: str, given: str | Sequence[str], *, several: bool = True) -> dict[str, str]:
    """The argument `name`, a text or with `several` a list of them, by the name of each text in a message. Raises UserError."""
    if isinstance(given, str):
        return {name: given}
    if not several or isinstance(given, (bytes, Mapping)) or not isinstance(given, Iterable):
        raise UserError(f"{name}={short(given)}: use {'a str, or a list of str' if several else 'one str'}")
    texts = {f"{name}[{i}]": text for i, text in enumerate(given)}
    for where, text in texts.items():
        if not isinstance(text, str):
            raise UserError(f"{where}={short(text)}: use a str")
    return texts


def short(value: object) -> str:
    """`value` in a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def option(default: Any, group: str, says: str, kind: Kind = Kind(), metavar: str = "", *, off: Any = None, **add: Any) -> Any:
    """What is beside an option. `off` is the value with which a rule does nothing; `add` is for argparse's add_argument."""
    if isinstance(default, bool):
        add["action"] = "store_true"
    elif metavar:
        add |= {"metavar": metavar, "type": kind.parse}
    else:
        add["choices"] = kind.use.removeprefix("one of ").split(", ")
    return field(default=default, metadata={"group": group, "kind": kind, "off": off, "add": {"help": says} | add})


def options_of(record: type) -> dict[str, Field[Any]]:
    """What is beside each option of a record, in their order."""
    if is_dataclass(record):
        return {each.name: each for each in fields(record) if each.metadata}
    return {name: hint.__metadata__[0] for name, hint in get_type_hints(record, include_extras=True).items()}


# fmt: off
class SharedOptions(TypedDict, total=False):
    """What holds for texts and for items. The rules apply in the order of their keys, each to the result of the one before."""

    unknown: Annotated[Literal["error", "skip"], option(
        "error", "prompt", "what to do with characters of the prompt that the model has never seen: skip leaves them out and "
        "names them (default: error; with --interactive and --chat: skip)", one_of("error", "skip"))]
    unique: Annotated[bool, option(
        False, "text", "with --lines: whole lines, none of them blank and none twice in a text; each begins with the last line "
        "of the prompt; the text ends early after 1,000 rejected lines in a row")]
    seed: Annotated[int | None, option(
        None, "text", "with the same seed and options, the model writes the same text; the Nth sample of seed S is the first "
        "sample of seed S + N - 1 (default: a random seed, which is printed)", whole(0, most=2**63), "S")]
    overflow: Annotated[Literal["refill", "exact"], option(
        "refill", "text", "how to continue beyond the model's block_size: refill forgets half of the context whenever the "
        "block is full; exact reads the last block_size characters again for each new character, many times slower (default: "
        "refill)", one_of("refill", "exact"))]
    label: Annotated[str | None, option(
        None, "items", "the label of each item (default: each label as often as in the training text)", TEXT, "L")]
    allow: Annotated[str | None, option(None, "rules", "write only these characters", TEXT, "CHARACTERS")]
    ban: Annotated[str | None, option(None, "rules", "never write these characters", TEXT, "CHARACTERS")]
    repetition_penalty: Annotated[float, option(
        1.0, "rules", "if more than 10 characters repeat a passage of the last 1024, make each further character R times less "
        "likely (default: 1, off)", real(lambda value: 1 <= value < math.inf, "a number of 1 (off) or more"), "R", off=1)]
    temperature: Annotated[float, option(
        0.8, "rules", "0 always takes the most likely character, 1 is the model as trained, more is more random; 0.5,0.8,1.1 "
        "writes samples at each of these temperatures (default: 0.8)",
        real(lambda value: 0 <= value < math.inf, "0 (always the most likely character) or a number above 0", typed_list),
        "T", off=1)]
    top_k: Annotated[int, option(0, "rules", "only the K most likely characters (default: 0, all)", whole(0), "K", off=0)]
    top_p: Annotated[float, option(
        1.0, "rules", "only the fewest characters whose probabilities sum to P (default: 1, all)",
        real(lambda value: 0 < value <= 1, "a number above 0 and up to 1 (off)"), "P", off=1)]
    min_p: Annotated[float, option(
        0.0, "rules", "only characters at least P times as likely as the most likely one (default: 0, all)",
        real(lambda value: 0 <= value <= 1, "a number from 0 (off) to 1"), "P", off=0)]


class TextOptions(SharedOptions, total=False):
    """How a text is written."""

    length: Annotated[int | None, option(
        None, "text", "write at most N characters; what --unseen and --unique remove also counts (default: 500, or 1000 for "
        "each of --lines; with --unique 100,000 more)", whole(0), "N")]
    lines: Annotated[int, option(0, "text", "end a text after N lines (default: 0, no limit)", whole(0), "N")]
    stop: Annotated[str | Sequence[str], option(
        (), "text", "end a text before TEXT appears, in which \\n is a newline, \\t a tab and \\\\ a backslash; may be given "
        "several times", Kind(read_escapes, lambda given: tuple(listed("stop", given).values())), "TEXT", action="append")]
    keep_stop: Annotated[bool, option(False, "text", "with --stop: TEXT is part of the text that it ends")]


class ItemOptions(SharedOptions, total=False):
    """Which items are written; the others that the model makes are refused."""

    new: Annotated[bool, option(False, "items", "no item of the training text; --unique writes no item twice")]
    match: Annotated[str | re.Pattern[str] | None, option(
        None, "items", "only items in which this regular expression matches; ^ begins a line",
        Kind(pattern, pattern, "a regular expression"), "REGEX")]
    min_length: Annotated[int, option(0, "items", "only items of N characters or more", whole(0), "N")]
    max_length: Annotated[int | None, option(
        None, "items", "only items of up to N characters (default: --length, or 1000)", whole(1), "N")]
# fmt: on


class _Values(SimpleNamespace):
    """An attribute for each option of a record: what is given, checked, or the default. Raises UserError."""

    def __init__(self, record: type, given: Mapping[str, Any]) -> None:
        known = options_of(record)
        assert given.keys() <= known.keys(), given.keys() - known.keys()
        super().__init__(**{name: _value(name, given.get(name, one.default), one) for name, one in known.items()})


class SamplingOptions(_Values):
    """How a text is written: the values of TextOptions."""

    def __init__(self, **given: Unpack[TextOptions]) -> None:
        super().__init__(TextOptions, given)

    def changed(self, **options: Unpack[TextOptions]) -> "SamplingOptions":
        """The same with other values."""
        return SamplingOptions(**{**vars(self), **options})

    @property
    def limit(self) -> int:
        """The most characters of a text, also if no length is given."""
        return self.length if self.length is not None else (1000 * self.lines or 500) + MORE_FOR_UNIQUE * self.unique

    def rules(self) -> dict[str, float]:
        """The sampling rules and their values, in their order."""
        known = options_of(TextOptions).items()
        return {name: getattr(self, name) for name, one in known if one.metadata["off"] is not None}

    def rules_in_use(self) -> dict[str, float]:
        """Those that are not off."""
        known = options_of(TextOptions)
        return {name: value for name, value in self.rules().items() if value != known[name].metadata["off"]}

    def describe(self) -> str:
        """The temperature, and every other rule that is on."""
        shown = {"temperature", *self.rules_in_use()}
        on = {name: value + 0 for name, value in self.rules().items() if name in shown}  # adding 0 turns -0.0 into 0.0
        return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in on.items())


class WantedItems(_Values):
    """Which items are written, and how many: the values of ItemOptions."""

    def __init__(self, count: int, **given: Unpack[ItemOptions]) -> None:
        super().__init__(ItemOptions, given)
        self.count = count
        if self.max_length is not None and self.max_length < self.min_length:
            most = f"use at most {self.max_length}, the most that an item may have"
            raise UserError(Given("min_length", self.min_length), most)

    def sampling(self, **more: Unpack[TextOptions]) -> SamplingOptions:
        """How each of them is written."""
        shared = {name: vars(self)[name] for name in options_of(SharedOptions) if name != "unique"}  # which is for lines there
        return SamplingOptions(**{**shared, **more})


# fmt: off
@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """What the user of sample.py asked for."""

    samplings: list[SamplingOptions]  # one for each temperature
    wanted: WantedItems
    of_items: Sequence[str] = ()  # the options of `wanted` that are given
    run: str | None = None
    start: str | None = option(
        None, "", f"a model that comes with the program, in place of a run; {command('starts')} lists them", TEXT, "NAME")
    device: str = option("auto", "", "auto, cpu, cuda, cuda:N or mps (default: auto)", TEXT, "D")
    precision: Literal["float32", "bfloat16", "int8"] = option(
        "float32", "", "how the weights are stored: bfloat16 takes half of the bytes and int8 a quarter, so a CPU reads them "
        "faster, but they are rounded; the arithmetic is float32 (default: float32)", one_of("float32", "bfloat16", "int8"))
    prompt: str = option(
        "", "prompt", "text to continue; \\n is a newline (default: none, the text begins on a new line)",
        Kind(read_escapes), "TEXT")
    prompt_file: str | None = option(None, "prompt", "text to continue, from a UTF-8 file; - is standard input", TEXT, "FILE")
    unseen: bool = option(False, "text", "with --lines: remove lines that occur in the text that the model was trained on")
    samples: int = option(1, "text", "write N texts, separated by a line of dashes (default: 1)", whole(1), "N")
    items: int = option(
        10, "items", "write N items, one for each line, and a table of how many are unique and new; --prompt is how each of "
        "them begins; with --json also the label and the log-probability (default: 10, unless an option for a text is given, "
        "such as --lines). The list ends after 1,000 items in a row that do not fit the options", whole(1), "N")
    next: int | None = option(
        None, "output", "write no text, but the N characters that are most likely to follow the prompt, and their "
        "probabilities in the model", whole(1), "N")
    json: bool = option(False, "output", "print each sample as a JSON object with the log-probability of each character")
    interactive: bool = option(
        False, "output", "type text and let the model continue it; /help lists the commands, Ctrl-C stops the text, exit "
        "leaves")
    chat: bool = option(False, "output", "--interactive for conversations: you type messages, and the model answers")
    as_: str | None = option(None, "output", "with --chat: your name in the conversation", TEXT, "NAME")
    with_: str | None = option(None, "output", "with --chat: the name of the one who answers", TEXT, "NAME")
    # fmt: on

    @property
    def sampling(self) -> SamplingOptions:
        """The options of the first temperature."""
        return self.samplings[0]

    @property
    def of_text(self) -> str:
        """The first option that asks for a text, also of a run on items; empty if none does."""
        asked = {"--lines": self.sampling.lines > 0, "--unseen": self.unseen, "--stop": bool(self.sampling.stop)}
        return _first(asked | self._several)

    @property
    def _several(self) -> dict[str, bool]:
        return {"--samples": self.samples > 1, "several temperatures": len(self.samplings) > 1}

    def __post_init__(self) -> None:
        for name, one in options_of(SampleOptions).items():
            object.__setattr__(self, name, _value(name, getattr(self, name), one))
        mode, several = "--chat" if self.chat else "--interactive", {"--prompt-file -": self.prompt_file == "-"} | self._several
        of_items, lines = [str(Option(name)) for name in self.of_items], self.sampling.lines
        of_item, names = next(iter(of_items), ""), _first({"--as": self.as_ is not None, "--with": self.with_ is not None})
        not_typed = _first({name: name != "--label" for name in of_items} | {"--json": self.json} | several)
        no_text = of_item or self.of_text or mode * self.interactive
        leave, lines_needed = "leave out one of the two", "so it needs a number of lines to write; add --lines N"
        wrong = {
            f"{names}: given without --chat; add it": names and not self.chat,
            f"{of_item}: {self.of_text} given as well, which is not for items; {leave}": of_item and self.of_text,
            f"{mode}: {not_typed} given as well; {leave}": self.interactive and not_typed,
            f"--next: {no_text} given as well; {leave}": self.next and no_text,
            "--keep-stop: keeps what ends a text; add --stop TEXT": self.sampling.keep_stop and not self.sampling.stop,
            f"--start: given together with the run {self.run}; leave one out": self.start is not None and self.run is not None,
            f"--prompt-file: --prompt given as well; {leave}": self.prompt and self.prompt_file is not None,
            f"--unique: removes repeated lines, {lines_needed}, or --items N": self.sampling.unique and not (lines or of_item),
            f"--unseen: removes lines, {lines_needed}": self.unseen and not lines,
        }
        if message := _first(wrong):
            raise UserError(message)


def _first(given: Mapping[str, object]) -> str:
    """The name of the first that is given; empty if none is."""
    return next((name for name, is_given in given.items() if is_given), "")


def parse_options(argv: list[str] | None) -> SampleOptions:
    """The options in `argv` (None: of this process). Raises UserError. Without --seed, the seed is random."""
    parser = Parser(
        prog=command("sample"),
        usage=f"{command('sample')} [RUN | --start NAME] [--prompt TEXT] [option ...]",
        description="Write text with a trained model: the prompt, then its continuation. A terminal gets control characters "
        "other than newline and tab as escapes such as \\x1b; a file or pipe gets the exact text.",
    )
    parser.add_argument(
        "run",
        nargs="?",
        metavar="RUN",
        help="the name of a run in checkpoints/, the path of a run, or the path of one of its checkpoints "
        "(default: the best checkpoint of the newest run)",
    )
    groups = {name: parser.add_argument_group(title) if name else parser for name, title in GROUPS.items()}
    of_text, of_items, shared, own = map(options_of, (TextOptions, ItemOptions, SharedOptions, SampleOptions))
    first = {name: one for name, one in of_text.items() if name not in shared}
    for name, one in (first | own | shared | of_items).items():
        flag = f"--{name.rstrip('_').replace('_', '-')}"  # as_, since as is a word of Python
        groups[one.metadata["group"]].add_argument(flag, default=argparse.SUPPRESS, dest=name, **one.metadata["add"])
    known, more = parser.parse_known_args(sys.argv[1:] if argv is None else argv)
    if more and not more[0].startswith("-"):
        raise UserError(f"{more[0]}: given after RUN; a prompt is given with --prompt {shell_word(more[0])}")
    if more:
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    given = vars(known)
    if given.get("chat"):
        given["interactive"] = True
    if given.get("interactive"):
        given.setdefault("unknown", "skip")
    given.setdefault("seed", random.SystemRandom().getrandbits(32))
    temperatures = given.pop("temperature", [of_text["temperature"].default])
    texts, items, rest = (
        {name: given[name] for name in given if name in names} for names in (of_text, of_items, {"run", *own})
    )
    items = {"max_length": texts.get("length") or None, **items, "temperature": temperatures[0]}
    return SampleOptions(
        samplings=[SamplingOptions(**texts, temperature=one) for one in temperatures],
        wanted=WantedItems(rest.get("items", SampleOptions.items), **items),
        of_items=[name for name in given if name in {"items", "label", *of_items.keys() - of_text.keys()}],
        **rest,
    )
