"""`python -m chargpt attention`: what the heads of a model attend to on a text, as one HTML page."""

import sys
from collections.abc import Sequence
from pathlib import Path

from chargpt.commands.common import load_run, page_file, part_of_text, verb_parser, write_page
from chargpt.errors import UserError
from chargpt.formatting import shown
from chargpt.option_table import whole
from chargpt.screen import log

MAX_WEIGHTS = 2**26  # on a page; more would make it slow to open


def main(argv: Sequence[str]) -> int:
    """Write the page that the options in `argv` ask for. Returns the exit code. Raises UserError."""
    about = """Write a page that shows what each head attends to: open it in a browser and point at a character. It is one file,
    which works offline. It names the patterns that heads follow, such as the previous character."""
    parser = verb_parser("attention", "RUN [TEXT] [option ...]", about, "run", "--device", "text")
    add, page = parser.add_argument, Path("attention.html")
    add("--text", dest="words", metavar="WORDS", help="look at these words, in place of a TEXT")
    add("--start", type=whole(0).read, default=0, metavar="N", help="begin after N characters (default: 0)")
    most = "at most N characters (default and limit: the context of the model)"
    add("--length", type=whole(2).read, metavar="N", help=most)
    add("--out", type=page_file, default=page, metavar="FILE", help=f"the page (default: {page})")
    options = parser.parse_intermixed_args(argv)
    if options.text is not None and options.words is not None:
        raise UserError(f"--text: given with the file {shown(options.text)}; leave one of them out")
    from chargpt.analysis.heads import measure_attention
    from chargpt.pages.attention_page import attention_page

    loaded = load_run(options.run, device=options.device)
    config = loaded.model.config
    length = min(config.block_size, int((MAX_WEIGHTS / (config.n_layer * config.n_head)) ** 0.5), options.length or sys.maxsize)
    ids, place = part_of_text(options.text, loaded, start=options.start, length=length, words=options.words)
    content = attention_page(measure_attention(loaded, ids), about=loaded.describe(), place=place)
    write_page(options.out, content)
    log(f"{place}; the page shows {config.n_layer} layers of {config.n_head} heads, in {len(content) / 1e6:.1f} MB")
    return 0
