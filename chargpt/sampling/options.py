"""How text is written, as one record. What is beside a field makes its option of sample.py, its line of --help, and its check.

The records of this file import no torch, so that --help and a mistyped option are answered at once.
"""

import argparse
import math
import operator
import random
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Any, Literal, NamedTuple, TypedDict

from chargpt.errors import Given, Option, UserError
from chargpt.project import command, shell_word
from chargpt.terminal import Parser, number, numbers, whole_number

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
    checked: Callable[[Any], Any] | None = None  # a value, as the record has it. Raises ValueError or TypeError
    use: str = ""  # what a message asks for


def whole(least: int, use: str = "", *, most: int = 10**18) -> Kind:
    """Whole numbers from `least` up to below `most`."""

    def checked(value: Any) -> int:
        if isinstance(value, bool) or not least <= operator.index(value) < most:
            raise ValueError
        return operator.index(value)

    return Kind(whole_number(least), checked, use or f"a whole number from {least} to {most - 1}")


def real(allowed: Callable[[float], bool], use: str, parse: Callable[[str], Any] = number) -> Kind:
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


def unescaped(text: str) -> str:
    """An argparse type: text whose backslash escapes are those of data.separator."""
    try:
        return text.encode("ascii", "backslashreplace").decode("unicode_escape")
    except UnicodeDecodeError:
        raise argparse.ArgumentTypeError(f"{text!r} given; use \\\\ for a backslash") from None


TEXT = Kind(str, _text, "a str")
TYPED = Kind(read_escapes)
PATTERN = Kind(pattern, pattern, "a regular expression")


def checked(name: str, value: Any, kind: Kind) -> Any:
    """The value of an option, as its record has it. Raises UserError."""
    try:
        return kind.checked(value) if kind.checked else value
    except UserError:
        raise
    except (TypeError, ValueError, argparse.ArgumentTypeError):
        raise UserError(Given(name, value), f"use {kind.use}") from None


def listed(name: str, given: str | Sequence[str]) -> tuple[list[str], list[str]]:
    """The argument `name`, a text or several, as a list, and the name of each text in a message. Raises UserError."""
    if isinstance(given, str):
        return [given], [name]
    if isinstance(given, (bytes, Mapping)) or not isinstance(given, Iterable):
        raise UserError(f"{name}={short(given)}: use a str, or a list of str")
    texts = list(given)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(f"{name}[{i}]={short(text)}: use a str")
    return texts, [f"{name}[{i}]" for i in range(len(texts))]


def short(value: object) -> str:
    """`value` in a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def option(default: Any, group: str, says: str, kind: Kind = Kind(), metavar: str = "", **more: Any) -> Any:
    """A field with its option. `more` is the `off` of a rule, and what argparse's add_argument takes."""
    if isinstance(default, bool):
        more["action"] = "store_true"
    else:
        more |= (
            {"metavar": metavar, "type": kind.parse} if metavar else {"choices": kind.use.removeprefix("one of ").split(", ")}
        )
    return field(
        default=default, metadata={"group": group, "kind": kind, "off": more.pop("off", None), "add": {"help": says} | more}
    )


class Checked:
    """A record of options. Raises UserError for a value out of range."""

    def __post_init__(self) -> None:
        for each in fields(self):  # type: ignore[arg-type]  # of a dataclass
            if (value := getattr(self, each.name)) is not each.default:
                object.__setattr__(self, each.name, checked(each.name, value, each.metadata["kind"]))


class RuleOptions(TypedDict, total=False):
    """Those of SamplingOptions that hold for items too, as type checkers see them in the library."""

    unknown: Literal["error", "skip"]
    seed: int | None
    overflow: Literal["refill", "exact"]
    allow: str | None
    ban: str | None
    repetition_penalty: float
    temperature: float
    top_k: int
    top_p: float
    min_p: float


class TextOptions(RuleOptions, total=False):
    """All of SamplingOptions, and a label."""

    length: int | None
    lines: int
    unique: bool
    stop: str | Sequence[str]
    keep_stop: bool
    label: str | None


@dataclass(frozen=True, kw_only=True)
class SamplingOptions(Checked):
    """How text is written. The rules apply in the order of their fields, each to the result of the one before."""

    unknown: Literal["error", "skip"] = option(
        "error",
        "prompt",
        "what to do with characters of the prompt that the model has never seen: skip leaves them out and names them "
        "(default: error; with --interactive and --chat: skip)",
        one_of("error", "skip"),
    )
    length: int | None = option(
        None,
        "text",
        "write at most N characters; what --unseen and --unique remove also counts (default: 500, or 1000 for each of "
        "--lines; with --unique 100,000 more)",
        whole(0),
        "N",
    )
    lines: int = option(0, "text", "end a text after N lines", Kind(whole_number(1), *whole(0)[1:]), "N")
    unique: bool = option(
        False,
        "text",
        "with --lines: whole lines, none of them blank and none twice in a text; each begins with the last line of the prompt; "
        "the text ends early after 1,000 rejected lines in a row",
    )
    stop: Sequence[str] = option(
        (),
        "text",
        "end a text before TEXT appears, in which \\n is a newline, \\t a tab and \\\\ a backslash; may be given several times",
        Kind(unescaped, lambda given: tuple(listed("stop", given)[0])),
        "TEXT",
        action="append",
    )
    keep_stop: bool = option(False, "text", "with --stop: TEXT is part of the text that it ends")
    seed: int | None = option(
        None,
        "text",
        "with the same seed and options, the model writes the same text; the Nth sample of seed S is the first sample of "
        "seed S + N - 1 (default: a random seed, which is printed)",
        whole(0, most=2**63),
        "S",
    )
    overflow: Literal["refill", "exact"] = option(
        "refill",
        "text",
        "how to continue beyond the model's block_size: refill forgets half of the context whenever the block is full; "
        "exact reads the last block_size characters again for each new character, many times slower (default: refill)",
        one_of("refill", "exact"),
    )
    allow: str | None = option(None, "rules", "write only these characters", TEXT, "CHARACTERS")
    ban: str | None = option(None, "rules", "never write these characters", TEXT, "CHARACTERS")
    repetition_penalty: float = option(
        1.0,
        "rules",
        "if more than 10 characters repeat a passage of the last 1024, make each further character R times less likely "
        "(default: 1, off)",
        real(lambda value: 1 <= value < math.inf, "a number of 1 (off) or more"),
        "R",
        off=1,
    )
    temperature: float = option(
        0.8,
        "rules",
        "0 always takes the most likely character, 1 is the model as trained, more is more random; 0.5,0.8,1.1 writes "
        "samples at each of these temperatures (default: 0.8)",
        real(lambda value: 0 <= value < math.inf, "0 (always the most likely character) or a number above 0", numbers),
        "T",
        off=1,
    )
    top_k: int = option(
        0,
        "rules",
        "only the K most likely characters (default: 0, all)",
        whole(0, "a whole number of 0 (off) or more"),
        "K",
        off=0,
    )
    top_p: float = option(
        1.0,
        "rules",
        "only the fewest characters whose probabilities sum to P (default: 1, all)",
        real(lambda value: 0 < value <= 1, "a number above 0 and up to 1 (off)"),
        "P",
        off=1,
    )
    min_p: float = option(
        0.0,
        "rules",
        "only characters at least P times as likely as the most likely one (default: 0, all)",
        real(lambda value: 0 <= value <= 1, "a number from 0 (off) to 1"),
        "P",
        off=0,
    )

    @property
    def limit(self) -> int:
        """The most characters of a text, also if no length is given."""
        return self.length if self.length is not None else (1000 * self.lines or 500) + MORE_FOR_UNIQUE * self.unique

    def rules(self) -> dict[str, float]:
        """The sampling rules and their values, in their order."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.metadata["off"] is not None}

    def rules_in_use(self) -> dict[str, float]:
        """Those that are not off."""
        off = {each.name: each.metadata["off"] for each in fields(self)}
        return {name: value for name, value in self.rules().items() if value != off[name]}

    def describe(self) -> str:
        """The temperature, and every other rule that is on."""
        shown = {"temperature", *self.rules_in_use()}
        on = {name: value + 0 for name, value in self.rules().items() if name in shown}  # adding 0 turns -0.0 into 0.0
        return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in on.items())


@dataclass(frozen=True, kw_only=True)
class ItemOptions(Checked):
    """Which items are written; the others that the model makes are refused."""

    items: int = option(
        10,
        "items",
        "write N items, one for each line, and a table of how many are unique and new; --prompt is how each of them begins; "
        "with --json also the label and the log-probability (default: 10, unless an option for a text is given, such as "
        "--lines). The list ends after 1,000 items in a row that do not fit the options",
        whole(1),
        "N",
    )
    label: str | None = option(
        None, "items", "the label of each item (default: each label as often as in the training text)", TEXT, "L"
    )
    new: bool = option(False, "items", "no item of the training text; --unique writes no item twice")
    match: re.Pattern[str] | None = option(
        None, "items", "only items in which this regular expression matches; ^ begins a line", PATTERN, "REGEX"
    )
    min_length: int = option(0, "items", "only items of N characters or more", whole(0), "N")
    max_length: int | None = option(
        None, "items", "only items of up to N characters (default: --length, or 1000)", whole(1), "N"
    )
    unique: bool = field(default=False, metadata={"kind": Kind()})  # --unique, which is for lines too

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_length is not None and self.max_length < self.min_length:
            least = ("use at least ", Option("min_length"), f", which is {self.min_length}")
            raise UserError(Given("max_length", self.max_length), *least)


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """What the user of sample.py asked for."""

    samplings: list[SamplingOptions]  # one for each temperature
    wanted: ItemOptions = ItemOptions()
    of_items: Sequence[str] = ()  # the options of `wanted` that are given
    run: str | None = None
    start: str | None = option(
        None, "", f"a model that comes with the program, in place of a run; {command('starts')} lists them", TEXT, "NAME"
    )
    device: str = option("auto", "", "auto, cpu, cuda, cuda:N or mps (default: auto)", TEXT, "D")
    precision: Literal["float32", "bfloat16", "int8"] = option(
        "float32",
        "",
        "how the weights are stored: bfloat16 takes half of the bytes and int8 a quarter, so a CPU reads them faster, but "
        "they are rounded; the arithmetic is float32 (default: float32)",
        one_of("float32", "bfloat16", "int8"),
    )
    prompt: str = option(
        "", "prompt", "text to continue; \\n is a newline (default: none, the text begins on a new line)", TYPED, "TEXT"
    )
    prompt_file: str | None = option(None, "prompt", "text to continue, from a UTF-8 file; - is standard input", TEXT, "FILE")
    unseen: bool = option(False, "text", "with --lines: remove lines that occur in the text that the model was trained on")
    samples: int = option(1, "text", "write N texts, separated by a line of dashes (default: 1)", whole(1), "N")
    next: int = option(
        0,
        "output",
        "write no text, but the N characters that are most likely to follow the prompt, and their probabilities in the model",
        whole(1),
        "N",
    )
    json: bool = option(False, "output", "print each sample as a JSON object with the log-probability of each character")
    interactive: bool = option(
        False,
        "output",
        "type text and let the model continue it; /help lists the commands, Ctrl-C stops the text, exit leaves",
    )
    chat: bool = option(False, "output", "--interactive for conversations: you type messages, and the model answers")
    as_: str | None = option(None, "output", "with --chat: your name in the conversation", TEXT, "NAME")
    with_: str | None = option(None, "output", "with --chat: the name of the one who answers", TEXT, "NAME")

    @property
    def sampling(self) -> SamplingOptions:
        """The options of the first temperature."""
        return self.samplings[0]

    @property
    def of_text(self) -> str:
        """The first option that asks for a text, also of a run on items; empty if none does."""
        asked = {"--lines": self.sampling.lines > 0, "--unseen": self.unseen, "--stop": bool(self.sampling.stop)}
        return _first(asked | {"--samples": self.samples > 1, "several temperatures": len(self.samplings) > 1})

    def __post_init__(self) -> None:
        several = {"--samples": self.samples > 1, "several temperatures": len(self.samplings) > 1}
        if not self.chat and (wrong := _first({"--as": self.as_ is not None, "--with": self.with_ is not None})):
            raise UserError(f"{wrong}: given without --chat; add it")
        mode = "--chat" if self.chat else "--interactive"
        typed = {"--json": self.json, **several, "--prompt-file -": self.prompt_file == "-"}
        of_items = [str(Option(name)) for name in self.of_items]
        given, others = next(iter(of_items), ""), self.of_text
        if given and others:
            raise UserError(f"{given}: {others} given as well, which is not for items; leave out one of the two")
        if self.interactive and (wrong := next((name for name in of_items if name != "--label"), "") or _first(typed)):
            raise UserError(f"{mode}: {wrong} given as well; leave out one of the two")
        if self.next and (wrong := given or others or mode * self.interactive):
            raise UserError(f"--next: {wrong} given as well; leave out one of the two")
        if self.sampling.keep_stop and not self.sampling.stop:
            raise UserError("--keep-stop: keeps the text that ends a sample; add --stop TEXT")
        if self.run is not None and self.start is not None:
            raise UserError(f"--start: {self.start} given together with the run {self.run}; leave one out")
        if self.prompt and self.prompt_file is not None:
            raise UserError("--prompt-file: --prompt given as well; leave out one of the two")
        if self.sampling.unique and not self.sampling.lines and not given:
            raise UserError(
                "--unique: removes repeated lines, so it needs a number of lines to write; add --lines N, or --items N"
            )
        if self.unseen and not self.sampling.lines:
            raise UserError("--unseen: removes lines, so it needs a number of lines to write; add --lines N")


def _first(given: Mapping[str, bool]) -> str:
    """The name of the first option that is given; empty if none is."""
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
    for each in (*fields(SamplingOptions), *fields(ItemOptions), *fields(SampleOptions)):
        if "add" in each.metadata:
            name = f"--{each.name.rstrip('_').replace('_', '-')}"  # as_, since as is a word of Python
            add = {"default": argparse.SUPPRESS, "dest": each.name, **each.metadata["add"]}
            groups[each.metadata["group"]].add_argument(name, **add)
    given, more = parser.parse_known_args(sys.argv[1:] if argv is None else argv)
    if more and not more[0].startswith("-"):
        raise UserError(f"{more[0]}: given after RUN; a prompt is given with --prompt {shell_word(more[0])}")
    if more:
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    values = vars(given)
    if values.get("chat"):
        values["interactive"] = True
    if values.get("interactive"):
        values.setdefault("unknown", "skip")
    values.setdefault("seed", random.SystemRandom().getrandbits(32))
    chosen = {each.name: values.pop(each.name) for each in fields(SamplingOptions) if each.name in values}
    each_temperature = chosen.pop("temperature", [SamplingOptions.temperature])
    items = {each.name: values.pop(each.name) for each in fields(ItemOptions) if each.name in values}
    wanted = ItemOptions(**items, unique=chosen.get("unique", False))
    samplings = [SamplingOptions(**chosen, temperature=value) for value in each_temperature]
    return SampleOptions(samplings=samplings, wanted=wanted, of_items=list(items), **values)
