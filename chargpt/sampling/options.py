"""The table of the options of sample.py: how text is written. See `option_table.py` for what is made from it.

This file imports neither torch nor numpy: --help and a mistyped option are answered at once.
"""

import argparse
import os
import random
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

from chargpt.canonical import canonical
from chargpt.errors import Given, Option, UserError
from chargpt.option_table import (
    LARGEST,
    SMALLEST,
    TEXT,
    Values,
    add_options,
    check,
    check_fields,
    check_together,
    entries,
    keywords,
    number,
    one_of,
    option,
    typed,
    whole,
)
from chargpt.parser import Parser
from chargpt.project import command, shell_word

Unknown = Literal["error", "skip"]  # what to do with characters that the model has never seen
Overflow = Literal["refill", "exact"]  # how to continue beyond the model's block_size
Precision = Literal["float32", "bfloat16", "int8"]  # to which weights are rounded
LONGEST = 1000  # characters of an item at most, if no length is given
LINES_NEEDED = "so it needs a number of lines to write; add --lines N"
OF_CHAT = {"needs": "chat", "without": "given without --chat; add it"}
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


MOST_USED = 2  # the highest temperature that is of use: what is above, after 0 and a comma, is a decimal fraction


def typed_list(text: str) -> list[float | str]:
    """An argparse type: one number, or several separated by commas."""
    whole, _, tenths = text.partition(",")
    if whole == "0" and tenths.isdecimal() and (tenths[0] == "0" < tenths or int(tenths) > MOST_USED):
        raise argparse.ArgumentTypeError(f"{text} is two numbers; did you mean 0.{tenths}?")
    return [typed(part) for part in text.split(",")]


def read_utf8(text: str) -> str:
    """An argparse type: text that was typed in UTF-8, also in a locale that has only ASCII."""
    try:
        return os.fsencode(text).decode()
    except UnicodeEncodeError:  # not from bytes: half a character of Windows
        return text
    except UnicodeDecodeError:
        raise argparse.ArgumentTypeError("bytes that are not UTF-8 given; set your terminal and its locale to UTF-8") from None


def read_escapes(text: str) -> str:
    """An argparse type: text in which \\n is a newline, \\t a tab and \\\\ a backslash. Other backslashes stay."""
    return re.sub(r"\\[nt\\]", lambda found: {r"\n": "\n", r"\t": "\t"}.get(found[0], "\\"), read_utf8(text))


UNKNOWN, OVERFLOW, PRECISION = (one_of(*get_args(choices)) for choices in (Unknown, Overflow, Precision))
WRITTEN = TEXT._replace(parse=read_utf8)  # what is compared with what a model has seen
TEXTS = Values("", lambda given: tuple(texts_by_name("stop", given).values()), read_escapes, "TEXT")
WORDS = Values(
    "", lambda given: tuple(_word(name, word) for name, word in texts_by_name("ban_word", given).items()), read_utf8, "WORD"
)
REGEX = Values("a regular expression", lambda text: re.compile(text, re.MULTILINE if isinstance(text, str) else 0), read_utf8)
TEMPERATURE = number(0, LARGEST, "0 (always the most likely character) or a number above 0", typed_list)


def texts_by_name(name: str, given: str | Sequence[str], *, several: bool = True) -> dict[str, str]:
    """The argument `name`, a text or with `several` a list of them, by the name of each text in a message. Raises UserError."""
    if isinstance(given, str):
        return {name: given}
    if not several or isinstance(given, (bytes, Mapping)) or not isinstance(given, Iterable):
        raise UserError(Given(name, given), f"use {'a str, or a list of str' if several else 'one str'}")
    return {f"{name}[{i}]": check(f"{name}[{i}]", text, TEXT) for i, text in enumerate(given)}


def _word(name: str, text: str) -> str:
    """A word as it is searched for, whatever its case and its Unicode form."""
    if not text.strip():
        raise UserError(Given(name, text), "use a word that may not appear")
    return canonical(text.casefold())


OF_TEXTS, OF_ITEMS = ("TextKeywords",), ("ItemKeywords",)
BOTH, FOR_ITEMS = OF_TEXTS + OF_ITEMS, "items new match min_length max_length"
rule, output = partial(option, "rules", keywords=BOTH), partial(option, "output")
text_option, of_samples = partial(option, "text", keywords=OF_TEXTS), "lines unseen stop samples temperature"
item_option = partial(option, "items", keywords=OF_ITEMS, excludes=of_samples, since="that is for a text, not for items")
typing_mode = partial(output, False, excludes=f"{FOR_ITEMS} json samples temperature")


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How a text is written, or how items are. Raises UserError for a value that an option does not take.

    The sampling rules apply in the order of their fields, each to the result of the one before.
    """

    length: int | None = text_option(None, whole(0))(
        "write at most N characters; what --unseen and --unique remove also counts (default: 500, or 1000 for each of --lines; "
        "with --unique 100,000 more)"
    )
    lines: int = text_option(0, whole(0))("end a text after N lines (default: 0, no limit)")
    stop: str | Sequence[str] = text_option((), TEXTS, add={"action": "append"})(
        "end a text before TEXT appears, in which \\n is a newline, \\t a tab and \\\\ a backslash; may be given several times"
    )
    keep_stop: bool = text_option(False, needs="stop", without="keeps the TEXT of --stop; add --stop TEXT")(
        "with --stop: TEXT is part of the text that it ends"
    )
    unique: bool = text_option(
        False, keywords=BOTH, needs=f"lines {FOR_ITEMS} label", without=f"removes repeated lines, {LINES_NEEDED}, or --items N"
    )(
        "with --lines: whole lines, none of them blank and none twice in a text; each begins with the last line of the "
        "prompt; the text ends early after 1,000 rejected lines in a row"
    )
    ban_word: str | Sequence[str] = text_option(
        (),
        WORDS,
        keywords=BOTH,
        needs=f"lines {FOR_ITEMS} label",
        without=f"removes lines, {LINES_NEEDED}, or --items N",
        add={"action": "append"},
    )(
        "with --lines or --items: no line and no item in which WORD appears, in any case, also within a longer word; may be "
        "given several times"
    )
    seed: int | None = text_option(None, whole(0, most=2**63 - 1), "S", keywords=BOTH)(
        "with the same seed and options, the model writes the same text; the Nth sample of seed S is the first sample of "
        "seed S + N - 1 (default: a random seed, which is printed)"
    )
    overflow: Overflow = text_option("refill", OVERFLOW, keywords=BOTH)(
        "how to continue beyond the model's block_size: refill forgets half of the context whenever the block is full; "
        "exact reads the last block_size characters again for each new character, many times slower (default: refill)"
    )
    items: int = item_option(10, whole(1), keywords=())(
        "write N items, one for each line, and a table of how many are unique and new; --prompt is how each of them begins; "
        "with --json also the label and the log-probability (default: 10, unless an option for a text is given, such as "
        "--lines). The list ends early if too many do not fit the options"
    )
    new: bool = item_option(False)("no item of the training text; --unique writes no item twice")
    match: str | re.Pattern[str] | None = item_option(None, REGEX, "REGEX")(
        "only items in which this regular expression matches; ^ begins a line"
    )
    min_length: int = item_option(0, whole(0))("only items of N characters or more")
    max_length: int | None = item_option(None, whole(1))("only items of up to N characters (default: --length, or 1000)")
    label: str | None = item_option(None, WRITTEN, "L", keywords=BOTH)(
        "the label of each item (default: as often as in the training text)"
    )
    unknown: Unknown = option("prompt", "error", UNKNOWN, keywords=BOTH)(
        "what to do with characters of the prompt that the model has never seen: skip leaves them out and names them "
        "(default: error; with --interactive and --chat: skip)"
    )
    allow: str | None = rule(None, WRITTEN, "CHARACTERS")("write only these characters")
    ban: str | None = rule(None, WRITTEN, "CHARACTERS")("never write these characters")
    repetition_penalty: float = rule(1.0, number(1, LARGEST, "a number of 1 (off) or more"), "R", off=1, c="double")(
        "make a character that lengthens a repeated passage of the last 1024 characters less likely: R times for each "
        "character of the passage beyond the tenth (default: 1, off)"
    )
    temperature: float = rule(0.8, TEMPERATURE, "T", off=1, c="float")(
        "0 always takes the most likely character, 1 is the model as trained, more is more random; 0.5,0.8,1.1 writes samples "
        "at each of these temperatures (default: 0.8)"
    )
    top_k: int = rule(0, whole(0), "K", off=0, c="int")("only the K most likely characters (default: 0, all)")
    top_p: float = rule(1.0, number(SMALLEST, 1, "a number above 0 and up to 1 (off)"), "P", off=1, c="float")(
        "only the fewest characters whose probabilities sum to P (default: 1, all)"
    )
    min_p: float = rule(0.0, number(0, 1, "a number from 0 (off) to 1"), "P", off=0, c="float")(
        "only characters at least P times as likely as the most likely one (default: 0, all)"
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.longest < self.min_length:
            given = Given("min_length", self.min_length)
            raise UserError(given, f"use at most {self.longest}, or a larger ", Option("max_length"))

    def bans(self, text: str) -> bool:
        """Whether a word that may not appear is in `text`."""
        return any(word in canonical(text.casefold()) for word in self.ban_word)

    def for_one(self) -> "SamplingOptions":
        """The same for an item or a turn alone: without what is asked of whole lines, or of several items."""
        return replace(self, unique=False, ban_word=())

    @property
    def limit(self) -> int:
        """The most characters of a text, also if no length is given."""
        return self.length if self.length is not None else (1000 * self.lines or 500) + MORE_FOR_UNIQUE * self.unique

    @property
    def longest(self) -> int:
        """The most characters of an item, likewise."""
        return next(most for most in (self.max_length, self.length, LONGEST) if most is not None)

    def rules(self) -> dict[str, float]:
        """The sampling rules and their values, in their order."""
        return {name: getattr(self, name) for name, entry in entries(self).items() if entry.off is not None}

    def rules_in_use(self) -> dict[str, float]:
        """Those that are not off; a number above 0 is one that float32 can divide by and compare with."""
        table = entries(self)
        on = {name: value for name, value in self.rules().items() if value != table[name].off}
        return {name: min(max(value, 1e-30), 1e30) if value > 0 else value for name, value in on.items()}

    def describe(self) -> str:
        """The temperature, and every other rule that is on."""
        on = {"temperature": self.temperature} | self.rules_in_use()
        return ", ".join(f"{name.replace('_', ' ')} {value + 0:g}" for name, value in on.items())  # not -0


if TYPE_CHECKING:
    from chargpt.arguments import ItemKeywords, TextKeywords
else:
    TextKeywords, ItemKeywords = (keywords(name, SamplingOptions) for name in ("TextKeywords", "ItemKeywords"))


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """What the user of sample.py asked for."""

    samplings: list[SamplingOptions]  # one for each temperature
    of_items: Sequence[str] = ()  # the options for items that are given
    run: str | None = None
    start: str | None = option("", None, TEXT, "NAME")(
        f"a model that comes with the program, in place of a run; {command('starts')} lists them"
    )
    device: str = option("", "auto", TEXT, "D")("auto (CUDA or else the CPU), cpu, cuda, cuda:N or mps (default: auto)")
    precision: Precision = option("", "float32", PRECISION)(
        "how the weights are stored: bfloat16 takes half of the bytes and int8 a quarter, so a CPU reads them faster, but they "
        "are rounded; the arithmetic is float32 (default: float32)"
    )
    prompt: str = option("prompt", "", TEXT._replace(parse=read_escapes))(
        "text to continue; \\n is a newline (default: none, the text begins on a new line)"
    )
    prompt_file: str | None = option("prompt", None, TEXT, "FILE", excludes="prompt")(
        "text to continue, from a UTF-8 file; - is standard input"
    )
    samples: int = option("text", 1, whole(1))("write N texts, separated by a line of dashes (default: 1)")
    unseen: bool = option("text", False, needs="lines", without=f"removes lines, {LINES_NEEDED}")(
        "with --lines: remove lines that occur in the text that the model was trained on"
    )
    next: int | None = output(None, whole(1), excludes=f"{FOR_ITEMS} label {of_samples} interactive chat")(
        "write no text, but the N characters that are most likely to follow the prompt, and their probabilities in the model"
    )
    json: bool = output(False)("print each sample as a JSON object with the log-probability of each character")
    json_array: bool = output(False)("the same as one JSON array")
    interactive: bool = typing_mode()(
        "type text and let the model continue it; /help lists the commands, Ctrl-C stops the text, exit leaves"
    )
    chat: bool = typing_mode()("--interactive for conversations: you type messages, and the model answers")
    as_: str | None = output(None, WRITTEN, "NAME", **OF_CHAT)("with --chat: your name in the conversation")
    with_: str | None = output(None, WRITTEN, "NAME", **OF_CHAT)("with --chat: the name of the one who answers")

    @property
    def sampling(self) -> SamplingOptions:
        """The options of the first temperature."""
        return self.samplings[0]

    @property
    def of_text(self) -> bool:
        """Whether an option asks for a text, also of a run on items."""
        return any(map(self.gives, of_samples.split()))

    @property
    def types(self) -> bool:
        """Whether a person types what the model continues."""
        return self.interactive or self.chat

    def gives(self, name: str) -> Option | None:
        """The option of this name as it is given, if it asks for something that is not done without it."""
        if name == "temperature":
            several = ",".join(f"{one.temperature:g}" for one in self.samplings)
            return Option(name, several) if "," in several else None
        value, entry = getattr(self if hasattr(self, name) else self.sampling, name), TABLE[name]
        is_given = name in self.of_items if entry.section == "items" else value != entry.default
        return Option(name.rstrip("_")) if is_given else None

    def __post_init__(self) -> None:
        check_fields(self)
        check_together(TABLE, self.gives)
        if self.start is not None and self.run is not None:
            raise UserError(f"--start: given together with the run {self.run}; leave one out")
        if self.types and self.prompt_file == "-":
            mode = Option("chat" if self.chat else "interactive")
            raise UserError(mode, ": --prompt-file - given as well; leave out one of the two")


TABLE = {**entries(SampleOptions), **entries(SamplingOptions)}  # all options of sample.py


def parse_options(argv: list[str] | None) -> SampleOptions:
    """The options in `argv` (None: of this process). Raises UserError. Without --seed, the seed is random."""
    parser = Parser(
        prog=command("sample"),
        usage=f"{command('sample')} [RUN | --start NAME] [--prompt TEXT] [option ...]",
        description="Write text with a trained model: the prompt, then its continuation. A terminal gets control characters "
        "other than newline and tab as escapes such as \\x1b; a file or pipe gets the exact text.",
    )
    run = "the name of a run in checkpoints/, its path, the path of one of its checkpoints, or a file that a page has kept "
    run += "(default: the best checkpoint of the newest run)"
    parser.add_argument("run", nargs="?", metavar="RUN", help=run)
    add_options(parser, TABLE, sections=GROUPS)
    known, more = parser.parse_known_args(sys.argv[1:] if argv is None else argv)
    if more and not more[0].startswith("-"):
        raise UserError(f"{more[0]}: given after RUN; a prompt is given with --prompt {shell_word(more[0])}")
    if more:
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    given = vars(known)
    if given.get("json_array"):
        given["json"] = True
    if given.get("interactive") or given.get("chat"):
        given.setdefault("unknown", "skip")
    given.setdefault("seed", random.SystemRandom().getrandbits(32))
    temperatures = given.pop("temperature", [SamplingOptions.temperature])
    texts = {name: given.pop(name) for name in entries(SamplingOptions) if name in given}
    return SampleOptions(
        samplings=[SamplingOptions(**texts, temperature=one) for one in temperatures],
        of_items=[name for name in texts if TABLE[name].section == "items"],
        **given,
    )
