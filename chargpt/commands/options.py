"""Options that several verbs have, their checks, and notices on standard error. Imports no torch, so that --help is quick."""

import json
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import TextIO

from chargpt.terminal import UserError, escape_controls, one_line


def add_run_options(parser: ArgumentParser) -> None:
    """The run, and the device to compute on."""
    parser.add_argument("run", metavar="RUN", help="a run in checkpoints/, its path, or the path of one of its checkpoints")
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cpu, cuda, cuda:N or mps")


def add_text_option(parser: ArgumentParser) -> None:
    """The one text to look at, for `loaded_run.part_of_text`."""
    parser.add_argument(
        "text",
        metavar="TEXT",
        nargs="?",
        help="a file in UTF-8, or - for standard input (default: the validation part of the run's text, from the cache)",
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


def print_json(value: object) -> None:
    """Print `value` as a line of JSON, for a terminal without characters that command it."""
    print(json_line(value, sys.stdout), flush=True)


def json_line(value: object, file: TextIO) -> str:
    """`value` as JSON for `file`: where a terminal would obey a character of it, all beyond ASCII are escapes."""
    text = json.dumps(value, ensure_ascii=False)
    return json.dumps(value) if file.isatty() and escape_controls(text) != text else text


def say(text: str) -> None:
    """Print a notice, one line without control characters, which is no part of the output."""
    print(one_line(text), file=sys.stderr, flush=True)
