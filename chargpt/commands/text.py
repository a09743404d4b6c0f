"""`python -m chargpt text`: what a text is like, and what to expect of a model trained on it; or a cleaner text."""

from collections.abc import Sequence
from dataclasses import replace

from chargpt.commands.common import text_in
from chargpt.config import Config
from chargpt.errors import UserError, what_to_do
from chargpt.files import write_synced
from chargpt.formatting import plural, shown
from chargpt.planning.cli import parse_text_options
from chargpt.project import project_root
from chargpt.screen import log
from chargpt.settings import COMMAND_LINE, apply


def main(argv: Sequence[str]) -> int:
    """Print what `train.py --dry-run` prints, or write the clean text. Returns the exit code. Raises UserError."""
    (options, path), root = parse_text_options(argv), project_root()
    if path is None:
        from chargpt.planning.plan import make_plan

        print(make_plan(options, root=root).describe())
        return 0
    from chargpt.text.cleaning import clean_text
    from chargpt.text.sources import select_sources

    data = apply(Config(), options.settings, where=COMMAND_LINE).data
    config = replace(data, vocabulary="characters", val_text="")
    text, counts = clean_text(text_in(select_sources(options.texts, config, root=root), config))
    try:
        write_synced(path, text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise UserError(f"--clean: {shown(path)}: {error.strerror}; {what_to_do(error)}") from None
    mended = ", ".join(f"{n:,} {what}" for what, n in counts.items())
    log(f"{shown(path)}: {plural(len(text), 'character')} written; removed or replaced: {mended}")
    return 0
