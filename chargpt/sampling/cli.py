"""The table of the other options of sample.py, and its command line. Those of a text are in `options.py`.

This file imports neither torch nor numpy: --help and a mistyped option are answered at once.
"""

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from chargpt.errors import Option, UserError
from chargpt.option_table import TEXT, add_options, check_fields, check_together, entries, option, whole
from chargpt.parser import Parser
from chargpt.project import command, shell_word
from chargpt.sampling.options import (
    FOR_ITEMS,
    LINES_NEEDED,
    PRECISION,
    WRITTEN,
    Precision,
    SamplingOptions,
    of_samples,
    read_escapes,
)

OF_CHAT = {"needs": "chat", "without": "given without --chat; add it"}
# The groups of --help, in its order.
GROUPS = {
    "": "",
    "prompt": "the prompt",
    "text": "what to write",
    "items": "a run on items (train.py --items) writes items",
    "rules": "how the next character is chosen, in this order",
    "output": "how it is printed",
}
output = partial(option, "output")
typing_mode = partial(output, False, excludes=f"{FOR_ITEMS} json samples temperature")


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
