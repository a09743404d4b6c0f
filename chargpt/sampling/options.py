"""The options of sample.py. Nothing here imports torch, so that --help and a mistyped option are answered at once."""

import argparse
import dataclasses
import re
import secrets
import sys
from dataclasses import dataclass
from typing import Any, Literal

from chargpt.errors import UserError, shell_word
from chargpt.project import command
from chargpt.terminal import Parser, number, numbers, whole_number

MORE_FOR_UNIQUE = 100_000  # characters that --unique may write and remove again


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """What the user asked for."""

    run: str | None
    start: str | None
    device: str
    precision: Literal["float32", "bfloat16", "int8"]
    # the prompt
    prompt: str
    prompt_file: str | None
    unknown: Literal["error", "skip"]
    # what to write
    length: int
    lines: int
    unseen: bool
    unique: bool
    stop: list[str]
    samples: int
    seed: int
    overflow: Literal["exact", "refill"]
    # items
    items: int
    label: str | None
    new: bool
    match: re.Pattern[str] | None
    min_length: int
    max_length: int | None
    # how the next character is chosen
    allow: str | None
    ban: str | None
    repetition_penalty: float
    temperatures: list[float]
    top_k: int
    top_p: float
    min_p: float
    # how it is printed
    json: bool
    interactive: bool


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
    start = f"a model that comes with the program, in place of a run; {command('starts')} lists them"
    parser.add_argument("--start", metavar="NAME", help=start)
    parser.add_argument("--device", metavar="D", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16", "int8"),
        default="float32",
        help="how the weights are stored: bfloat16 takes half of the bytes and int8 a quarter, so a CPU reads them faster, but "
        "they are rounded; the arithmetic is float32 (default: float32)",
    )
    _add_prompt_options(parser.add_argument_group("the prompt"))
    _add_text_options(parser.add_argument_group("what to write"))
    _add_item_options(parser.add_argument_group("a run on items (train.py --items) writes items"))
    _add_sampling_options(parser.add_argument_group("how the next character is chosen, in this order"))
    _add_output_options(parser.add_argument_group("how it is printed"))
    argv = sys.argv[1:] if argv is None else argv
    given, more = parser.parse_known_args(argv)
    if more and not more[0].startswith("-"):
        raise UserError(f"{more[0]}: given after RUN; a prompt is given with --prompt {shell_word(more[0])}")
    if more:
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    longest_item = given.length if given.max_length is None else given.max_length
    if given.length is None:
        given.length = default_length(given.lines, unique=given.unique)
    if given.seed is None:
        given.seed = secrets.randbits(32)
    if given.unknown is None:
        given.unknown = "skip" if given.interactive else "error"
    options = SampleOptions(**vars(given))
    _check_combination(options)
    return dataclasses.replace(options, max_length=longest_item)


def default_length(lines: int, *, unique: bool = False) -> int:
    """The most characters of a text for which no length is given."""
    return (1000 * lines or 500) + MORE_FOR_UNIQUE * unique


def _check_combination(options: SampleOptions) -> None:
    of_items = {
        "--label": options.label is not None,
        "--new": options.new,
        "--match": options.match is not None,
        "--min-length": options.min_length > 0,
        "--max-length": options.max_length is not None,
    }
    of_texts = {
        "--lines": options.lines > 0,
        "--unseen": options.unseen,
        "--stop": bool(options.stop),
        "--samples": options.samples > 1,
        "several temperatures": len(options.temperatures) > 1,
    }
    given = ["--items"] * bool(options.items) + [name for name, is_given in of_items.items() if is_given]
    others = [name for name, is_given in of_texts.items() if is_given]
    if given and others:
        raise UserError(f"{given[0]}: {others[0]} given as well, which is not for items; leave out one of the two")
    if options.max_length is not None and options.max_length < options.min_length:
        raise UserError(f"--max-length: {options.max_length} given, less than --min-length {options.min_length}; raise it")
    if options.interactive and (wrong := [name for name in given if name != "--label"]):
        raise UserError(f"--interactive: {wrong[0]} given as well; leave out one of the two")
    if options.unique and not options.lines and not given:
        raise UserError("--unique: removes repeated lines, so it needs a number of lines to write; add --lines N, or --items N")
    if options.run is not None and options.start is not None:
        raise UserError(f"--start: {options.start} given together with the run {options.run}; leave one out")
    if options.unseen and not options.lines:
        raise UserError("--unseen: removes lines, so it needs a number of lines to write; add --lines N")
    excluded = {
        "--json": options.json,
        "--samples": options.samples > 1,
        "several temperatures": len(options.temperatures) > 1,
        "--prompt-file -": options.prompt_file == "-",
    }
    if options.interactive and any(excluded.values()):
        other = next(option for option, given in excluded.items() if given)
        raise UserError(f"--interactive: {other} given as well; leave out one of the two")


def _add_prompt_options(group: Any) -> None:
    either = group.add_mutually_exclusive_group().add_argument
    either("--prompt", metavar="TEXT", default="", help="text to continue (default: none, the text begins on a new line)")
    either("--prompt-file", metavar="FILE", help="text to continue, from a UTF-8 file; - is standard input")
    group.add_argument(
        "--unknown",
        choices=("error", "skip"),
        help="what to do with characters of the prompt that the model has never seen: skip leaves them out and names them "
        "(default: error; with --interactive: skip)",
    )


def _add_text_options(group: Any) -> None:
    add = group.add_argument
    add(
        "--length",
        type=whole_number(0),
        metavar="N",
        help="write at most N characters; what --unseen and --unique remove also counts (default: 500, or 1000 for each of "
        "--lines; with --unique 100,000 more)",
    )
    add("--lines", type=whole_number(1), default=0, metavar="N", help="end a text after N lines")
    add("--unseen", action="store_true", help="with --lines: remove lines that occur in the text that the model was trained on")
    add(
        "--unique",
        action="store_true",
        help="with --lines: no line twice in a text, no blank line, no part of a line; each line begins with the last line of "
        "the prompt; the text ends early after 1,000 lines in a row that were removed",
    )
    add(
        "--stop",
        action="append",
        default=[],
        metavar="TEXT",
        help="end a text before TEXT appears; may be given several times; in bash, $'\\n\\n' is an empty line",
    )
    add(
        "--samples",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="write N texts, separated by a line of dashes (default: 1)",
    )
    add(
        "--seed",
        type=whole_number(0),
        metavar="S",
        help="with the same seed and options, the model writes the same text; the Nth sample of seed S is the first sample of "
        "seed S + N - 1 (default: a random seed, which is printed)",
    )
    add(
        "--overflow",
        choices=("exact", "refill"),
        default="refill",
        help="how to continue beyond the model's block_size: refill forgets half of the context whenever the block is full; "
        "exact reads the last block_size characters again for each new character, many times slower (default: refill)",
    )


def _add_item_options(group: Any) -> None:
    add = group.add_argument
    add(
        "--items",
        type=whole_number(1),
        default=0,
        metavar="N",
        help="write N items, one for each line, and a table of how many are unique and new; --prompt is how each of "
        "them begins; with --json also the label and the log-probability (default: 10, unless an option for a text is given, "
        "such as --lines). The list ends after 1,000 items in a row that do not fit the options",
    )
    add("--label", metavar="L", help="the label of each item (default: each label as often as in the training text)")
    add("--new", action="store_true", help="no item of the training text; --unique writes no item twice")
    add("--match", type=pattern, metavar="REGEX", help="only items in which this regular expression matches")
    add("--min-length", type=whole_number(0), default=0, metavar="N", help="only items of N characters or more")
    add("--max-length", type=whole_number(1), metavar="N", help="only items of up to N characters (default: --length, or 1000)")


def pattern(text: str) -> re.Pattern[str]:
    """An argparse type: a regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} given, which is no regular expression: {error}; correct it") from None


def _add_sampling_options(group: Any) -> None:
    add = group.add_argument
    add("--allow", metavar="CHARACTERS", help="write only these characters")
    add("--ban", metavar="CHARACTERS", help="never write these characters")
    add(
        "--repetition-penalty",
        type=number,
        default=1.0,
        metavar="R",
        help="if more than 10 characters repeat a passage of the last 1024, make each further character R times less likely "
        "(default: 1, off)",
    )
    add(
        "--temperature",
        dest="temperatures",
        type=numbers,
        default=[0.8],
        metavar="T",
        help="0 always takes the most likely character, 1 is the model as trained, more is more random; 0.5,0.8,1.1 writes "
        "samples at each of these temperatures (default: 0.8)",
    )
    add("--top-k", type=whole_number(0), default=0, metavar="K", help="only the K most likely characters (default: 0, all)")
    add(
        "--top-p",
        type=number,
        default=1.0,
        metavar="P",
        help="only the fewest characters whose probabilities sum to P (default: 1, all)",
    )
    add(
        "--min-p",
        type=number,
        default=0.0,
        metavar="P",
        help="only characters at least P times as likely as the most likely one (default: 0, all)",
    )


def _add_output_options(group: Any) -> None:
    add = group.add_argument
    add("--json", action="store_true", help="print each sample as a JSON object with the log-probability of each character")
    add(
        "--interactive",
        action="store_true",
        help="type text and let the model continue it; /help lists the commands, Ctrl-C stops the text, Ctrl-D leaves",
    )
