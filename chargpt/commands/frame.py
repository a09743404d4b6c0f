"""The frame of every verb: its options are read, then torch is imported, then it does its work. And what several verbs share.

Shared are options and their checks, the run and its text, and JSON on standard output. Importing this module imports no torch,
so that --help and a mistyped option are answered at once.
"""

import dataclasses
import importlib
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from chargpt.errors import UserError
from chargpt.interrupt import ending_at_once
from chargpt.project import command, project_root
from chargpt.terminal import Parser, json_line, log, one_line, shown

if TYPE_CHECKING:  # imports torch
    from torch import Tensor

    from chargpt.sampling.loaded_model import LoadedModel
    from chargpt.text.corpus import Corpus
    from chargpt.text.items import Item

Options = TypeVar("Options")


def verb_parser(verb: str, usage: str, description: str) -> Parser:
    """The parser of a verb; `usage` is what follows the verb."""
    program = command(verb)
    return Parser(prog=program, usage=f"{program} {usage}", description=description)


def run_verb(parse: Callable[[Sequence[str]], Options], argv: Sequence[str], work: Callable[[Options], None]) -> int:
    """Read the options in `argv` with `parse`, import torch, and do the `work` with them. Returns the exit code."""
    options = parse(list(argv))
    with ending_at_once():  # it takes a second or two, and there is nothing to finish yet
        importlib.import_module("torch")
    work(options)
    return 0


def add_run_options(parser: ArgumentParser) -> None:
    """The run, and the device to compute on."""
    parser.add_argument("run", metavar="RUN", help="a run in checkpoints/, its path, or the path of one of its checkpoints")
    add_device_option(parser)


def add_device_option(parser: ArgumentParser) -> None:
    """The device to compute on."""
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cpu, cuda, cuda:N or mps")


def add_text_option(parser: ArgumentParser) -> None:
    """The one text to look at, for `part_of_text`."""
    parser.add_argument(
        "text",
        metavar="TEXT",
        nargs="?",
        help="a file in UTF-8, or - for standard input (default: the validation split of the run's text, from the cache)",
    )


def page_file(name: str) -> Path:
    """An argparse type: a file for a page to write."""
    path = Path(name)
    if path.is_dir():
        raise ArgumentTypeError(f"{name!r} given, which is a folder; give a file name, such as {str(path / 'page.html')!r}")
    if path.suffix.lower() not in (".html", ".htm"):  # so that a slip never replaces a text
        raise ArgumentTypeError(f"{name!r} given; the name of a page ends in .html")
    if not path.absolute().parent.is_dir():
        raise ArgumentTypeError(f"{name!r} given; its folder does not exist")
    if not os.access(path.absolute().parent, os.W_OK):
        raise ArgumentTypeError(f"{name!r} given; its folder cannot be written to")
    return path


def stride_within(stride: int | None, context: int) -> int:
    """The `stride` of the windows, None for half of the model's context. Raises UserError if it is longer than the context."""
    if stride is not None and stride > context:
        raise UserError(f"--stride: {stride:,} given; use at most the context of the model, {context:,}")
    return stride or max(1, context // 2)


def load_run(name: str, *, device: str, described: bool = True) -> "LoadedModel":
    """The model of the run `name`. Its warnings, and a line that describes it, go to standard error.

    Raises UserError.
    """
    from chargpt.sampling.loaded_model import load_model

    loaded, warnings = load_model(name, project_root() / "checkpoints", device=device)
    for warning in warnings:
        log(f"warning: {warning}")
    if described:
        log(loaded.describe())
    return loaded


def corpus_of_run(loaded: "LoadedModel") -> "Corpus":
    """The encoded text that the run was trained on, see `corpus_in_cache`. Raises UserError if it is in no cache."""
    from chargpt.runs.checkpoint_schema import NO_TEXT
    from chargpt.runs.load import corpus_in_cache

    corpus = corpus_in_cache(loaded.config, loaded.tokenizer, loaded.fingerprint, root=project_root())
    if corpus is not None:
        return corpus
    if loaded.fingerprint == NO_TEXT and not loaded.texts:
        raise UserError(f"{loaded.run}: was imported without a text, so it has no validation split; give a text here")
    raise UserError(
        f"{loaded.run}: its training text is not in the cache; {command('train')} --resume --run {loaded.run} encodes it "
        "again if it is unchanged"
    )


def label_counts(loaded: "LoadedModel") -> "Mapping[str, int]":
    """How often each label is in the training text of the run. Raises UserError if it is in no cache."""
    items = corpus_of_run(loaded).items
    return {} if items is None else items.labels


def items_for(loaded: "LoadedModel", texts: Sequence[str], settings: Sequence[str]) -> "list[Item]":
    """The items in `texts`, read as those of the run but for `settings`; without any, the validation items of the run.

    A text without fields has an item in each line. Items have no label where the text has none. Raises UserError.
    """
    from chargpt.text.items import items_in

    if not loaded.config.data.items:
        raise UserError(f"{loaded.run}: was not trained on items; train with --items")
    if not texts:
        corpus = corpus_of_run(loaded)
        return items_in(corpus.val, corpus.tokenizer, has_labels=bool(loaded.config.data.label_fields))
    from chargpt.config import COMMAND_LINE, apply
    from chargpt.planning.cli import settings_in
    from chargpt.text.item_list import list_items

    data = loaded.tokenizer.settings(apply(loaded.config, settings_in(settings), where=COMMAND_LINE).data)
    return list_items(texts, dataclasses.replace(data, val_text=""), root=project_root())


def part_of_text(text: str | None, loaded: "LoadedModel", *, start: int, length: int, least: int = 1) -> tuple["Tensor", str]:
    """At most `length` ids (T,) of a text from `start` on, and a line that says which. Raises UserError below `least`.

    `text` is a file, or - for standard input; None is the validation split of the run's text. Characters that the model does
    not know are left out.
    """
    import numpy as np
    import torch

    from chargpt.sampling.prompt import encode_prompt, read_prompt

    if text is None:
        ids, name = corpus_of_run(loaded).val, "the validation split"
        if not len(ids):
            raise UserError(f"{loaded.run}: has no validation split, since all of its text is for training; give a TEXT")
    else:
        ids = np.array(encode_prompt(read_prompt("", text), loaded.tokenizer, unknown="skip"), np.int64)
        name = "standard input" if text == "-" else shown(text)
    part = torch.from_numpy(ids[start : start + length].astype(np.int64))
    if len(part) < least:
        known = f"{len(part)} of its characters are known to the model" + (f" after the first {start:,}" if start else "")
        is_beyond = start and len(ids) >= least
        latest = max(0, len(ids) - length)
        earlier = f"use --start {latest} or less" if latest else "leave --start out"
        what_to_do = earlier if is_beyond else "give a longer text"
        raise UserError(f"{name}: {known}, but at least {least} are needed; {what_to_do}")
    return part, one_line(f"characters {start + 1:,} to {start + len(part):,} of {name} ({len(ids):,})")


def print_json(value: object) -> None:
    """Print `value` as a line of JSON, for a terminal without characters that command it."""
    print(json_line(value, sys.stdout), flush=True)
