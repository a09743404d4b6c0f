"""What several verbs share: options and their checks, the run and its text, tables, and JSON on standard output.

The `main` of a verb reads its options, and then imports what does the work. Importing this module imports no torch, so that
--help and a mistyped option are answered at once.
"""

import dataclasses
import re
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chargpt.errors import TextTooShort, UserError
from chargpt.formatting import columns, distinct, one_line, plural, shown
from chargpt.json_lines import json_array
from chargpt.notices import Kind
from chargpt.parser import Parser
from chargpt.processor import may_have_gpu
from chargpt.project import command, project_root
from chargpt.screen import log

if TYPE_CHECKING:  # imports torch
    import numpy as np

    from chargpt.config import DataConfig
    from chargpt.sampling.loaded_model import LoadedModel
    from chargpt.settings import Tree
    from chargpt.text.item_stream import Item
    from chargpt.text.source import Sources

NUMBERS = re.compile(r"[-+±*?%,.\d ]*( MB|nan%)?")  # a cell of a column of numbers
# Options that several verbs have: TEXT is the one text to look at, for `part_of_text`.
SHARED: dict[str, dict[str, Any]] = {
    "run": {"metavar": "RUN", "help": "a run, its path, that of a checkpoint, a kept file, or a start"},
    "--device": {"metavar": "D", "default": "auto", "help": "auto (CUDA or else the CPU), cpu, cuda, cuda:N or mps"},
    "text": {
        "metavar": "TEXT",
        "nargs": "?",
        "help": "a file in UTF-8, or - for standard input (default: the validation split of the run's text, from the cache)",
    },
}


def verb_parser(verb: str, usage: str, description: str, *shared: str) -> Parser:
    """The parser of a verb, with these of the options in SHARED; `usage` is what follows the verb."""
    program = command(verb)
    parser = Parser(prog=program, usage=f"{program} {usage}", description=description)
    for name in shared:
        parser.add_argument(name, **SHARED[name])
    return parser


def add_json_option(add: Callable[..., object], what: str) -> None:
    """Two forms of JSON, where `add` adds an option; `json_output` reads them."""
    add("--json", action="store_true", help=what)
    add("--json-array", action="store_true", help="the same as one JSON array")


def json_output(options: Namespace) -> AbstractContextManager[None]:
    """Inside, what `write_json` writes is a line for each value, or one array. Either form of the option sets `json`."""
    options.json |= options.json_array
    return json_array(is_asked=options.json_array)


def page_file(name: str) -> Path:
    """An argparse type: a file for a page to write."""
    path = Path(name)
    if path.is_dir():
        raise ArgumentTypeError(f"{name!r} given, which is a folder; give a file name, such as {str(path / 'page.html')!r}")
    if path.suffix.lower() not in (".html", ".htm"):  # so that a slip never replaces a text
        raise ArgumentTypeError(f"{name!r} given; the name of a page ends in .html")
    if not path.absolute().parent.is_dir():
        raise ArgumentTypeError(f"{name!r} given; its folder does not exist")
    return path


def load_run(name: str, *, device: str) -> "LoadedModel":
    """The model of a run, or of a start if no run has its name, for torch. A line about it and warnings go to standard error.
    Raises UserError."""
    from chargpt.runs.load import means_start
    from chargpt.sampling.loaded_model import load_model

    if device == "auto" and may_have_gpu():
        from chargpt.device import choose_device

        device = str(choose_device(device))
    checkpoints = project_root() / "checkpoints"
    given: dict[str, Any] = {"run": None, "start": name} if means_start(name, checkpoints) else {"run": name}
    loaded, warnings = load_model(checkpoints=checkpoints, device=device, **given)
    for warning in warnings:
        log(warning, Kind.WARNING)
    log(loaded.describe())
    return loaded


def items_for(loaded: "LoadedModel", texts: Sequence[str], settings: "Tree") -> "list[Item]":
    """The items in `texts`, read as those of the run but for `settings`, or its validation items. Raises UserError."""
    from chargpt.text.item_stream import items_in

    if not loaded.config.data.items:
        raise UserError(f"{loaded.run}: was not trained on items; train with --items")
    if not texts:
        corpus = loaded.corpus()
        return items_in(corpus.val, corpus.tokenizer, has_labels=bool(loaded.config.data.label_fields))
    from chargpt.sampling.item_writer import known_items
    from chargpt.settings import COMMAND_LINE, apply
    from chargpt.text.examination import MAX_OVERLAP
    from chargpt.text.item_reader import list_items

    data = loaded.tokenizer.settings(apply(loaded.config, settings, where=COMMAND_LINE).data)
    items = list_items(texts, dataclasses.replace(data, val_text=""), root=project_root())
    with suppress(UserError):  # its own text may be gone
        known = known_items(loaded.corpus())
        share = sum(item.text in known for item in items) / max(1, len(items))
        if share > MAX_OVERLAP:
            log(f"{share:.0%} of the items are some that the model was trained on, so this tells little about new ones")
    return items


def part_of_text(
    text: str | None, loaded: "LoadedModel", *, start: int, length: int, words: str | None = None
) -> "tuple[np.ndarray, str]":
    """At most `length` ids (T,) from `start` on, two at least, of a file, of `words` or by default of the validation split, and
    a line that says which, and which characters are left out. Raises UserError."""
    import numpy as np

    from chargpt.sampling.prompt import read_prompt

    if text is None and words is None:
        ids, name, unknown = loaded.corpus().val, "the validation split", ""
        if not len(ids):
            raise UserError(f"{loaded.run}: has no validation split, since all of its text is for training; give a TEXT")
    else:
        ids, unknown = loaded.tokenizer.encode_known(read_prompt(words or "", text))
        name = "your text" if text is None else "standard input" if text == "-" else shown(text)
    part = ids[start : start + length].astype(np.int64)
    if len(part) < 2:
        begin = f" from --start {start:,} on" if start else ""
        what = f"too short: the model knows {plural(len(part), 'character')} of it{begin}, and needs two or more"
        raise TextTooShort(f"{name}: {what}; {'use a smaller --start' if start else 'give a longer text'}")
    return part, one_line(f"characters {start + 1:,} to {start + len(part):,} of the {len(ids):,} in {name}{left_out(unknown)}")


def left_out(unknown: str) -> str:
    """The end of a line on a text from which the characters `unknown` are left out; empty without any."""
    many = plural(len(unknown), "character")
    return f", without {many} that the model has never seen: {distinct(unknown)}" if unknown else ""


def text_in(sources: "Sources", data: "DataConfig") -> str:
    """The text of `sources` as training reads it with the settings `data`. Bytes that are not UTF-8 are surrogates."""
    from chargpt.text.reading import TextReader

    text = "".join(piece for _, piece in TextReader(sources, data))
    return text.encode("latin-1").decode("utf-8", "surrogateescape") if data.vocabulary == "bytes" else text


def write_page(path: Path, content: str) -> None:
    """Write a page, and print its path. A line on standard error says if it replaces an older one."""
    from chargpt.pages.page import publish_page

    if path.exists():
        log(f"{shown(path)}: written over an older page; to keep both next time, add --out FILE")
    publish_page(path, content)
    print(one_line(shown(path)))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells, the first with their names, as lines with columns of one width; a column of numbers is flush right."""
    padded = []
    for column in zip(*rows):
        cells, are_numbers = [*map(one_line, column)], all(map(NUMBERS.fullmatch, column[1:]))
        spaces = [" " * (max(map(columns, cells)) - columns(cell)) for cell in cells]
        padded.append([space + cell if are_numbers else cell + space for cell, space in zip(cells, spaces)])
    return ["  ".join(row).rstrip() for row in zip(*padded)]
