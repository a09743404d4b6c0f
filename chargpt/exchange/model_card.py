"""The model card: README.md of an export, written from the run. Its words are in model_card.md.j2.

Names, samples and vocabularies may contain anything. They are escaped for Markdown and HTML, or stand in an indented block,
which interprets nothing.
"""

import html
import math
import re
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from chargpt.exchange.export import ExportOptions
from chargpt.files import write_synced
from chargpt.formatting import escape_controls, one_line
from chargpt.runs.load import read_card, start_names
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.text.item_stream import end_in, item_prompt

SAMPLE_LENGTH = 500  # characters of the sample in the card
SAMPLE_ITEMS = 8  # in the sample of a run on items
SAMPLE_SEED = 1  # of that sample, which is the same each time
MAX_CHARACTERS = 2000  # of the vocabulary that are shown


def write_card(
    path: Path, loaded: LoadedModel, options: ExportOptions, *, library: str, usage: str, notes: Sequence[str]
) -> None:
    """Write a new README.md. `usage` and `notes` are Markdown without any name from the run. Raises OSError."""
    tokenizer, normalizer, config, start = loaded.tokenizer, loaded.tokenizer.normalizer, loaded.config, loaded.stage.start
    changes = {
        "line ends become newlines": normalizer.newlines == "fold",
        "lower case": normalizer.lowercase,
        f"Unicode normal form {normalizer.normalize}": normalizer.normalize != "none",
    }
    environment = Environment(  # no value of the run is put into the template without a filter
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"markdown": markdown, "block": block, "n": "{:,}".format}
    card = environment.get_template("model_card.md.j2").render(
        library=library,
        usage=usage,
        notes=notes,
        loaded=loaded,
        options=options,
        config=config,
        model=loaded.model.config,
        tokenizer=tokenizer,
        unit="byte" if tokenizer.characters is None else "character",
        nats_per_bit=math.log(2),
        start=start and str(start),
        start_texts=read_card(start.name).texts if start and not start.is_run and start.name in start_names() else [],
        end={"\n": "a newline"}.get(end_in(tokenizer), "the character U+001E"),
        sample=_sample(loaded, options),
        sample_length=SAMPLE_LENGTH,
        most_characters=MAX_CHARACTERS,
        changes=[change for change, is_made in changes.items() if is_made],
    )
    write_synced(path, card.encode())


def markdown(text: str) -> str:
    """`text` on one line, shown as it is wherever Markdown or HTML is interpreted."""
    text = one_line(text)
    if re.fullmatch(r"\w[\w .-]*", text) and "__" not in text and "www." not in text:
        return text  # nothing in it is interpreted, in the middle of a line
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|~:@$\"'/])", r"\\\1", html.escape(text, quote=False))


def block(text: str) -> str:
    """`text` as a block of code, each line indented, so that nothing in it can end the block."""
    return "\n".join(f"    {line}" for line in escape_controls(text).split("\n"))


def _sample(loaded: LoadedModel, options: ExportOptions) -> str:
    """A text that the model writes."""
    if not loaded.config.data.items:
        return loaded.generate(length=SAMPLE_LENGTH, seed=SAMPLE_SEED, temperature=0.8)
    labels, end = list(options.labels[:SAMPLE_ITEMS]) or [""] * SAMPLE_ITEMS, end_in(loaded.tokenizer)
    prompts = [item_prompt(loaded.tokenizer, label) for label in labels]
    length = SAMPLE_LENGTH // len(prompts)
    written = loaded.generate(prompts, length=length, stop=end, seed=SAMPLE_SEED, temperature=0.8)
    return "\n".join(text.removeprefix(end) for text in written)
