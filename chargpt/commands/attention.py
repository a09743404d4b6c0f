"""`python -m chargpt attention`: what the heads of a model attend to on a text, as one HTML page."""

import re
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from chargpt.commands.frame import (
    add_run_options,
    add_text_option,
    load_run,
    page_file,
    part_of_text,
    run_verb,
    verb_parser,
    write_page,
)
from chargpt.errors import UserError
from chargpt.terminal import log, shown, whole_number

if TYPE_CHECKING:  # imports torch, and --help shall be quick
    from chargpt.text.corpus import Corpus

MAX_WEIGHTS = 2**26  # on a page; more would make it slow to open
SEARCHED = 1000  # characters of the validation split in which a beginning is looked for


def main(argv: Sequence[str]) -> int:
    """Write the page that the options in `argv` ask for. Returns the exit code. Raises UserError."""
    parser = verb_parser(
        "attention",
        "RUN [TEXT] [option ...]",
        "Write a page that shows what each head attends to: open it in a browser and point at a character. It is "
        "one file, which works offline. It names the patterns that heads follow, such as the previous character.",
    )
    add_run_options(parser)
    add_text_option(parser)
    parser.add_argument("--text", dest="words", metavar="WORDS", help="look at these words, in place of a TEXT")
    parser.add_argument(
        "--start",
        type=whole_number(0),
        metavar="N",
        help="begin after N characters (default: 0, and in the validation split where a line begins)",
    )
    parser.add_argument(
        "--length", type=whole_number(1), metavar="N", help="at most N characters (default and limit: the context of the model)"
    )
    parser.add_argument(
        "--out", type=page_file, default=Path("attention.html"), metavar="FILE", help="the page (default: attention.html)"
    )
    return run_verb(parser.parse_intermixed_args, argv, show_heads)


def show_heads(options: Namespace) -> None:
    """Write the page."""
    from chargpt.analysis.characters import characters_of
    from chargpt.analysis.heads import measure_attention
    from chargpt.pages.attention_page import attention_page

    loaded = load_run(options.run, device=options.device)
    config = loaded.model.config
    length = min(config.block_size, int((MAX_WEIGHTS / (config.n_layer * config.n_head)) ** 0.5), options.length or sys.maxsize)
    if options.text is not None and options.words is not None:
        raise UserError(f"--text: given with the file {shown(options.text)}; leave one of them out")
    is_own = options.text is not None or options.words is not None
    start = options.start if options.start is not None else 0 if is_own else beginning(loaded.corpus(), length=length)
    ids, place = part_of_text(options.text, loaded, start=start, length=length, words=options.words)
    heads, characters = measure_attention(loaded, ids), characters_of(ids, loaded.tokenizer)
    content = attention_page(heads.weights, characters, heads.facts, about=loaded.describe(), place=place)
    write_page(options.out, content)
    log(f"{place}; {config.n_layer} layers of {config.n_head} heads; {len(content) / 1e6:.1f} MB")


def beginning(corpus: "Corpus", *, length: int) -> int:
    """The place in the validation split where a line, or else a word begins, `length` before its end."""
    from chargpt.analysis.characters import characters_of

    if corpus.marks is not None:  # it begins with an item
        return 0
    part = corpus.val[: max(0, min(SEARCHED, len(corpus.val) - length))]
    text = "".join(character[0] for character in characters_of(part, corpus.tokenizer))
    found = re.search(r"\n\s*(?=\S)", text) or re.search(r"\s(?=\S)", text)
    return found.end() if found else 0
