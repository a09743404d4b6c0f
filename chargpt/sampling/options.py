"""The table of the options of sample.py: how text is written. See `option_table.py` for what is made from it.

This file imports neither torch nor numpy: --help and a mistyped option are answered at once.
"""

import random
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

from chargpt.errors import Given, Option, UserError
from chargpt.option_table import (
    LARGEST,
    SMALLEST,
    TEXT,
    Kind,
    add_options,
    check,
    check_fields,
    entries,
    keywords,
    number,
    one_of,
    option,
    typed,
    whole,
)
from chargpt.project import command, shell_word
from chargpt.terminal import Parser

Unknown = Literal["error", "skip"]  # what to do with characters that the model has never seen
Overflow = Literal["refill", "exact"]  # how to continue beyond the model's block_size
Precision = Literal["float32", "bfloat16", "int8"]  # to which weights are rounded
LONGEST = 1000  # characters of an item at most, if no length is given
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


def typed_list(text: str) -> list[float | str]:
    """An argparse type: one number, or several separated by commas."""
    return [typed(part) for part in text.split(",")]


def read_escapes(text: str) -> str:
    """An argparse type: text in which \\n is a newline, \\t a tab and \\\\ a backslash. Other backslashes stay."""
    return re.sub(r"\\[nt\\]", lambda found: {r"\n": "\n", r"\t": "\t"}.get(found[0], "\\"), text)


UNKNOWN, OVERFLOW, PRECISION = (one_of(*get_args(choices)) for choices in (Unknown, Overflow, Precision))
TEXTS = Kind("", lambda given: tuple(listed("stop", given).values()), read_escapes, "TEXT")
REGEX = Kind("a regular expression", lambda text: re.compile(text, re.MULTILINE if isinstance(text, str) else 0))
TEMPERATURE = number(0, LARGEST, "0 (always the most likely character) or a number above 0", typed_list)


def listed(name: str, given: str | Sequence[str], *, several: bool = True) -> dict[str, str]:
    """The argument `name`, a text or with `several` a list of them, by the name of each text in a message. Raises UserError."""
    if isinstance(given, str):
        return {name: given}
    if not several or isinstance(given, (bytes, Mapping)) or not isinstance(given, Iterable):
        raise UserError(Given(name, given), f"use {'a str, or a list of str' if several else 'one str'}")
    return {f"{name}[{i}]": check(f"{name}[{i}]", text, TEXT) for i, text in enumerate(given)}


for_both = partial(option, keywords=("TextKeywords", "ItemKeywords"))
for_texts, for_items = partial(option, keywords=("TextKeywords",)), partial(option, keywords=("ItemKeywords",))


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How a text is written, or how items are. Raises UserError for a value that an option does not take.

    The sampling rules apply in the order of their fields, each to the result of the one before.
    """

    length: int | None = for_texts("text", None, whole(0))(
        "write at most N characters; what --unseen and --unique remove also counts (default: 500, or 1000 for each of --lines; "
        "with --unique 100,000 more)"
    )
    lines: int = for_texts("text", 0, whole(0))("end a text after N lines (default: 0, no limit)")
    stop: str | Sequence[str] = for_texts("text", (), TEXTS, add={"action": "append"})(
        "end a text before TEXT appears, in which \\n is a newline, \\t a tab and \\\\ a backslash; may be given several times"
    )
    keep_stop: bool = for_texts("text", False)("with --stop: TEXT is part of the text that it ends")
    unique: bool = for_both("text", False)(
        "with --lines: whole lines, none of them blank and none twice in a text; each begins with the last line of the "
        "prompt; the text ends early after 1,000 rejected lines in a row"
    )
    seed: int | None = for_both("text", None, whole(0, most=2**63 - 1), "S")(
        "with the same seed and options, the model writes the same text; the Nth sample of seed S is the first sample of "
        "seed S + N - 1 (default: a random seed, which is printed)"
    )
    overflow: Overflow = for_both("text", "refill", OVERFLOW)(
        "how to continue beyond the model's block_size: refill forgets half of the context whenever the block is full; "
        "exact reads the last block_size characters again for each new character, many times slower (default: refill)"
    )
    items: int = option("items", 10, whole(1))(
        "write N items, one for each line, and a table of how many are unique and new; --prompt is how each of them begins; "
        "with --json also the label and the log-probability (default: 10, unless an option for a text is given, such as "
        "--lines). The list ends after 1,000 items in a row that do not fit the options"
    )
    new: bool = for_items("items", False)("no item of the training text; --unique writes no item twice")
    match: str | re.Pattern[str] | None = for_items("items", None, REGEX, "REGEX")(
        "only items in which this regular expression matches; ^ begins a line"
    )
    min_length: int = for_items("items", 0, whole(0))("only items of N characters or more")
    max_length: int | None = for_items("items", None, whole(1))("only items of up to N characters (default: --length, or 1000)")
    label: str | None = for_both("items", None, TEXT, "L")("the label of each item (default: as often as in the training text)")
    unknown: Unknown = for_both("prompt", "error", UNKNOWN)(
        "what to do with characters of the prompt that the model has never seen: skip leaves them out and names them "
        "(default: error; with --interactive and --chat: skip)"
    )
    allow: str | None = for_both("rules", None, TEXT, "CHARACTERS")("write only these characters")
    ban: str | None = for_both("rules", None, TEXT, "CHARACTERS")("never write these characters")
    repetition_penalty: float = for_both(
        "rules", 1.0, number(1, LARGEST, "a number of 1 (off) or more"), "R", off=1, c="double"
    )(
        "make a character that lengthens a repeated passage of the last 1024 characters less likely: R times for each "
        "character of the passage beyond the tenth (default: 1, off)"
    )
    temperature: float = for_both("rules", 0.8, TEMPERATURE, "T", off=1, c="float")(
        "0 always takes the most likely character, 1 is the model as trained, more is more random; 0.5,0.8,1.1 writes samples "
        "at each of these temperatures (default: 0.8)"
    )
    top_k: int = for_both("rules", 0, whole(0), "K", off=0, c="int")("only the K most likely characters (default: 0, all)")
    top_p: float = for_both("rules", 1.0, number(SMALLEST, 1, "a number above 0 and up to 1 (off)"), "P", off=1, c="float")(
        "only the fewest characters whose probabilities sum to P (default: 1, all)"
    )
    min_p: float = for_both("rules", 0.0, number(0, 1, "a number from 0 (off) to 1"), "P", off=0, c="float")(
        "only characters at least P times as likely as the most likely one (default: 0, all)"
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.longest < self.min_length:
            given = Given("min_length", self.min_length)
            raise UserError(given, f"use at most {self.longest}, or a larger ", Option("max_length"))

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
    prompt_file: str | None = option("prompt", None, TEXT, "FILE")("text to continue, from a UTF-8 file; - is standard input")
    samples: int = option("text", 1, whole(1))("write N texts, separated by a line of dashes (default: 1)")
    unseen: bool = option("text", False)("with --lines: remove lines that occur in the text that the model was trained on")
    next: int | None = option("output", None, whole(1))(
        "write no text, but the N characters that are most likely to follow the prompt, and their probabilities in the model"
    )
    json: bool = option("output", False)("print each sample as a JSON object with the log-probability of each character")
    interactive: bool = option("output", False)(
        "type text and let the model continue it; /help lists the commands, Ctrl-C stops the text, exit leaves"
    )
    chat: bool = option("output", False)("--interactive for conversations: you type messages, and the model answers")
    as_: str | None = option("output", None, TEXT, "NAME")("with --chat: your name in the conversation")
    with_: str | None = option("output", None, TEXT, "NAME")("with --chat: the name of the one who answers")

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
        check_fields(self)
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
            "--keep-stop: keeps the TEXT of --stop; add --stop TEXT": self.sampling.keep_stop and not self.sampling.stop,
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
    run = "the name of a run in checkpoints/, its path, the path of one of its checkpoints, or a file that a page has kept "
    run += "(default: the best checkpoint of the newest run)"
    parser.add_argument("run", nargs="?", metavar="RUN", help=run)
    of_run, of_text = entries(SampleOptions), entries(SamplingOptions)
    add_options(parser, {**of_run, **of_text}.items(), sections=GROUPS)
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
    temperatures = given.pop("temperature", [SamplingOptions.temperature])
    texts = {name: given[name] for name in given if name in of_text}
    return SampleOptions(
        samplings=[SamplingOptions(**texts, temperature=one) for one in temperatures],
        of_items=[name for name in texts if of_text[name].section == "items"],
        **{name: given[name] for name in given if name not in of_text},
    )
