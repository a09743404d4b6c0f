"""The table of the options of a text: how it is written, by sample.py and by the library. See `option_table.py`.

This file imports neither torch nor numpy: --help and a mistyped option are answered at once.
"""

import argparse
import os
import re
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

Unknown = Literal["error", "skip"]  # what to do with characters that the model has never seen
Overflow = Literal["refill", "exact"]  # how to continue beyond the model's block_size
Precision = Literal["float32", "bfloat16", "int8"]  # to which weights are rounded
LONGEST = 1000  # characters of an item at most, if no length is given
LINES_NEEDED = "so it needs a number of lines to write; add --lines N"
MORE_FOR_UNIQUE = 100_000  # characters that --unique may write and remove again
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
rule = partial(option, "rules", keywords=BOTH)
text_option, of_samples = partial(option, "text", keywords=OF_TEXTS), "lines unseen stop samples temperature"
item_option = partial(option, "items", keywords=OF_ITEMS, excludes=of_samples, since="that is for a text, not for items")


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How a text is written, or how items are. Raises UserError for a value that an option does not take. The sampling rules
    apply in the order of their fields, each to the result of the one before."""

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
