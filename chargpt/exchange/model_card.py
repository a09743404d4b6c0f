"""The model card: README.md of an export, written from the run.

Names, samples and vocabularies may contain anything. They are escaped for Markdown and HTML, or stand in an indented block,
which interprets nothing.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path

from chargpt.exchange.export import ExportOptions
from chargpt.files import write_synced
from chargpt.runs.starts import read_card, start_names
from chargpt.sampling.loaded_model import LoadedModel
from chargpt.terminal import escape_controls, one_line
from chargpt.text.items import end_in, item_prompt

# Characters of the sample in the card.
SAMPLE_LENGTH = 500
# Items in the sample of a run on items, and labels that the card lists.
SAMPLE_ITEMS, SHOWN_LABELS = 8, 40
# The seed of that sample, which is the same each time.
SAMPLE_SEED = 1
# Characters of the vocabulary that are shown.
MAX_CHARACTERS = 2000
PAST_THE_CONTEXT = {
    "learned": "Its positions are learned: there are none beyond the context, and a longer text is an error.",
    "sinusoidal": "Its table of positions ends there: a longer text is an error.",
    "rotary": "Its positions are rotary: other programs accept a longer text without an error, but the model was never "
    "trained on one and writes worse text there.",
}
FRONT_MATTER = """---
library_name: {library}
pipeline_tag: text-generation
tags:
- character-level
- text-generation
# license: add the licence of this model here, for example mit
---
"""


def write_card(
    path: Path,
    loaded: LoadedModel,
    options: ExportOptions,
    *,
    library: str,
    usage: str,
    notes: Sequence[str],
) -> None:
    """Write a new README.md. `usage` and `notes` are Markdown without any name from the run. Raises OSError."""
    sections = [
        FRONT_MATTER.format(library=library) + f"# {markdown(options.name)}",
        _introduction(loaded, options),
        "## Use",
        usage,
        *[bullets(notes)] * bool(notes),
        "## A sample",
        f"At temperature 0.8, {_what(loaded)}, {SAMPLE_LENGTH} characters at most:",
        block(_sample(loaded, options)),
        "## The run",
        _facts(loaded),
        "## Vocabulary",
        _vocabulary(loaded),
        "Written by chargpt.",
    ]
    write_synced(path, ("\n\n".join(sections) + "\n").encode())


def markdown(text: str) -> str:
    """`text` on one line, shown as it is wherever Markdown or HTML is interpreted."""
    text = one_line(text)
    if re.fullmatch(r"\w[\w .-]*", text) and "__" not in text and "www." not in text:
        return text  # nothing in it is interpreted, in the middle of a line
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|~:@$\"'/])", r"\\\1", escaped)


def block(text: str) -> str:
    """`text` as a block of code, each line indented, so that nothing in it can end the block."""
    return "\n".join(f"    {line}" for line in escape_controls(text).split("\n"))


def bullets(lines: Sequence[str]) -> str:
    """A list."""
    return "\n".join(f"- {line}" for line in lines)


def _sample(loaded: LoadedModel, options: ExportOptions) -> str:
    """A text that the model writes."""
    if loaded.config.data.items:
        labels, end = list(options.labels[:SAMPLE_ITEMS]) or [""] * SAMPLE_ITEMS, end_in(loaded.tokenizer)
        prompts = [item_prompt(loaded.tokenizer, label) for label in labels]
        length = SAMPLE_LENGTH // len(prompts)
        written = loaded.generate(prompts, length=length, stop=end, seed=SAMPLE_SEED, temperature=0.8)
        return "\n".join(text.removeprefix(end) for text in written)
    return loaded.generate(length=SAMPLE_LENGTH, seed=SAMPLE_SEED, temperature=0.8)


def _introduction(loaded: LoadedModel, options: ExportOptions) -> str:
    config, unit = loaded.model.config, unit_of(loaded)
    texts = ", ".join(map(markdown, options.texts[:20])) or "its text"
    more = f" and {len(options.texts) - 20:,} more" if len(options.texts) > 20 else ""
    loss = ""
    if loaded.val_loss is not None:
        bits = loaded.val_loss / math.log(2)
        loss = f" Its validation loss is {loaded.val_loss:.4f} nats ({bits:.4f} bits) per {unit}."
    return (
        f"A language model of single {unit}s: a GPT-2 with {loaded.model.parameter_count():,} parameters, trained on "
        f"{texts}{more} for {loaded.step:,} steps.{loss}{_start(loaded)}\n\n"
        f"It sees {config.block_size:,} {unit}s at once. {PAST_THE_CONTEXT[config.positions]}"
        f"{_about_items(loaded, options)}"
    )


def _what(loaded: LoadedModel) -> str:
    return "items" if loaded.config.data.items else "from a new line"


def _about_items(loaded: LoadedModel, options: ExportOptions) -> str:
    """How the model writes an item, if it was trained on items."""
    if not loaded.config.data.items:
        return ""
    end = {"\n": "a newline"}.get(end_in(loaded.tokenizer), "the character U+001E")
    if not loaded.config.data.label_fields:
        return f"\n\nIt writes items: to get one, begin with {end} alone; {end} ends it."
    labels = ", ".join(map(markdown, options.labels[:SHOWN_LABELS]))
    more = f" and {len(options.labels) - SHOWN_LABELS:,} more" if len(options.labels) > SHOWN_LABELS else ""
    how = f"begin with {end}, the label and a tab; {end} ends it"
    return f"\n\nIt writes items of a label: to get one, {how}.{f' The labels: {labels}{more}.' if labels else ''}"


def _start(loaded: LoadedModel) -> str:
    """What its weights began with, and for a start on which texts that was trained; empty for a training from scratch."""
    name = loaded.config.train.start
    if not name:
        return ""
    if name not in start_names():
        return f" Its weights began with those of {markdown(name)}."
    texts = "; ".join(f"{markdown(text['name'])} ({markdown(text['terms'])})" for text in read_card(name).texts)
    return f" Its weights began with those of {markdown(name)}, a start of chargpt, which was trained on: {texts}."


def unit_of(loaded: LoadedModel) -> str:
    """What an id is."""
    return "byte" if loaded.tokenizer.characters is None else "character"


def _facts(loaded: LoadedModel) -> str:
    config, train, optim = loaded.model.config, loaded.config.train, loaded.config.optim
    rows = {
        "layers, heads, width": f"{config.n_layer}, {config.n_head}, {config.n_embd}",
        "context": f"{config.block_size:,}",
        "positions": config.positions,
        "biases": "yes" if config.bias else "no",
        "dropout": f"{config.dropout:g}",
        "optimizer": f"{optim.name}, learning rate {optim.learning_rate:g}, weight decay {optim.weight_decay:g}",
        "batch": f"{train.batch_size * train.accumulate:,} windows",
        "steps": f"{loaded.step:,} of {train.max_steps:,}",
        "seed": f"{train.seed}",
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def _vocabulary(loaded: LoadedModel) -> str:
    tokenizer, normalizer = loaded.tokenizer, loaded.tokenizer.normalizer
    changes = [
        *["line ends become newlines"] * (normalizer.newlines == "fold"),
        *["lower case"] * normalizer.lowercase,
        *[f"Unicode normal form {normalizer.normalize}"] * (normalizer.normalize != "none"),
    ]
    before = f" Text is changed first: {', '.join(changes)}." if changes else ""
    if tokenizer.characters is None:
        return f"The 256 byte values of UTF-8.{before}"
    rest = " One more id means every other character; it is never written." if tokenizer.folded else ""
    count = len(tokenizer.characters)
    shown = tokenizer.characters[:MAX_CHARACTERS].replace("\n", "\\n").replace("\t", "\\t")
    heading = "" if count <= MAX_CHARACTERS else f" The first {MAX_CHARACTERS:,}:"
    return f"{count:,} characters.{rest}{before}{heading}\n\n{block(shown)}"
