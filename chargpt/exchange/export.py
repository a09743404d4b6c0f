"""What every export has: the table of formats, the options of a writer, the packages it needs, and its publication.

An export is built aside and published whole or not at all. Nothing but an earlier export is ever replaced.

The module of a format has `write(loaded: LoadedModel, path: Path, options: ExportOptions) -> None`. The model is on the CPU;
`path` does not exist yet and becomes a file or a folder, whose final name the caller gives. Files are synced
(`write_synced` or `write_pieces_synced`). It raises UserError if the format cannot hold the model; then nothing is published.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from chargpt.errors import NotWritten, Option, UserError, what_to_do
from chargpt.files import aside, discard, publishing, remove_left_behind, sync_folder
from chargpt.formatting import shown
from chargpt.interrupt import ending_at_once
from chargpt.option_table import PathLike, check, one_of
from chargpt.runs.checkpoint import KEPT
from chargpt.standard import is_standard
from chargpt.standard_model import KINDS

if TYPE_CHECKING:
    from chargpt.model import GPTConfig
    from chargpt.sampling.loaded_model import LoadedModel

# What the folder of an export may hold. --force replaces a folder only if it holds nothing else: a new kind of file goes here.
WRITTEN = re.compile(r"README\.md|[\w-]+\.json|[\w.-]+\.(safetensors|gguf)")
OLD = ".old"  # added to the name of an earlier export while the new one takes its place
# A file is an earlier export if its first START bytes have, at a place, these, and somewhere a mark.
START, PAGE = 4096, b"`python -m chargpt export RUN --to html`"
MARKS = [(0, b"<!doctype html>", PAGE), (8, b'{"__metadata__":', b'"block_size')]


class Target(NamedTuple):
    """A format that a run can be exported to."""

    module: str  # whose function `write` makes the export; imported when it is used
    suffix: str  # of the default destination: the name of the run and this; with a dot, it is a file and not a folder
    what: str  # for --help
    use: str  # what to do with it, for a format string with `path`, and `word`, which is the path as a word of a shell


TARGETS = {  # a format of one file also needs a row of MARKS
    "hf": Target(
        "chargpt.exchange.hugging_face",
        "-hf",
        "a folder for transformers: AutoModelForCausalLM, AutoTokenizer",
        'in Python: transformers.pipeline("text-generation", model={path!r})',
    ),
    "gguf": Target(
        "chargpt.exchange.gguf_model",
        "-gguf",
        "a folder with a GGUF file for llama.cpp",
        'llama-completion -m {word}/model.gguf -p "PROMPT" --temp 0.8 -no-cnv',
    ),
    "html": Target(
        "chargpt.exchange.html",
        ".html",
        "one page that writes text in any browser, and learns from one, offline",
        "open {path} in a browser; it needs no network",
    ),
    "safetensors": Target(
        "chargpt.exchange.tensor_file",
        ".safetensors",
        "one file with the weights alone",
        "in Python: safetensors.torch.load_file({path!r}); the names are those of model.py",
    ),
}


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What a writer gets in addition to the model."""

    name: str = ""  # of the run, for titles and file names inside the export; it may contain any character that a file name may
    texts: Sequence[str] = ()  # the names of the training texts, without folders
    labels: tuple[str, ...] = ()  # of a run on items, most frequent first
    weights: str = "float16"  # or "int8": how a page holds the weights
    learning: Mapping[str, object] | None = None  # what a page needs to learn, as `needed` of learning.py gives it


def export(
    loaded: LoadedModel | None,
    to: str,
    out: PathLike | None,
    *,
    weights: str,
    learns: bool,
    force: bool,
    tell: Callable[[str], object],
) -> Path:
    """Write a model in the format `to`, or without one a page that has none, and return where.

    `tell` gets what a page lacks that should learn. Raises as `publish`.
    """
    check("to", to, one_of(*TARGETS))
    check("weights", weights, one_of("float16", "int8"))
    target, name = TARGETS[to], re.sub(r"[^\w.-]+", "-", "learn" if loaded is None else loaded.run)  # it needs no quotes
    destination = Path(out or (name.strip(".-") or "run").removesuffix(KEPT) + target.suffix)
    is_folder = not target.suffix.startswith(".")
    check_destination(destination, is_folder=is_folder, force=force)
    learning = _learning(tell, is_blank=loaded is None) if to == "html" and learns else None
    options = ExportOptions(**({} if loaded is None else _about(loaded, to)), weights=weights, learning=learning)
    write = importlib.import_module(target.module).write
    from chargpt.device import one_thread  # and torch

    with one_thread():  # several threads save seconds on an idle machine, and cost minutes beside other programs
        publish(destination, lambda path: write(loaded, path, options), is_folder=is_folder, force=force)
    return destination


def _about(loaded: LoadedModel, to: str) -> dict[str, Any]:
    """What a writer gets to know of a model. Raises UserError if the target cannot hold it."""
    check_target(to, loaded.model.config)
    corpus, texts = loaded.find_corpus(), [Path(text).name or text for text in loaded.texts]
    labels = () if corpus is None or corpus.items is None else tuple(corpus.items.labels)
    return {"name": loaded.run, "texts": texts, "labels": labels}


def _learning(tell: Callable[[str], object], *, is_blank: bool) -> Mapping[str, object] | None:
    """What a page needs to learn; None where no compiler makes it. Raises UserError for a blank page then."""
    from chargpt.exchange.learning import Unavailable, needed

    try:
        return needed()
    except Unavailable as reason:
        if is_blank:
            raise UserError(Option("blank"), f": a page that learns needs a kernel for browsers: {reason}") from None
        tell(f"this page writes, but does not learn, which needs a kernel for browsers: {reason}")
        return None


def check_target(target: str, config: GPTConfig) -> None:
    """Raise UserError unless a target has its package and can compute such a model: the standard one of model.py.

    Of its positions, all that are added, and rotary ones.
    """
    positions = config.positions
    if target != "safetensors" and positions != "rotary" and (positions not in KINDS or KINDS[positions].rotates):
        what = f"model.positions: {target} cannot compute {positions} positions; use "
        raise UserError(what, Option("to", "safetensors"))
    if target != "safetensors" and not is_standard(config):
        what = ": computes a GPT-2, and model.py computes something else; use "
        raise UserError(Option("to", target), what, Option("to", "safetensors"))
    if target == "gguf" and importlib.util.find_spec("gguf") is None:
        raise UserError(Option("to", target), f": needs the package gguf; run {sys.executable} -m pip install gguf")


def check_destination(destination: Path, *, is_folder: bool, force: bool) -> None:
    """Raise UserError unless `destination` is free, or `force` is given and it is an earlier export, a folder or a file."""
    if destination.name in ("", "..") or not destination.parent.is_dir():
        raise UserError(f"{shown(destination)}: give a new name, in a folder that exists")
    if not os.path.lexists(destination):
        return
    if not force:
        raise UserError(f"{shown(destination)}: exists; choose another name, or replace it with ", Option("force", True))
    lost = ""
    if destination.is_symlink() or not (destination.is_dir() if is_folder else destination.is_file()):
        found, needed = ("file", "folder") if is_folder else ("folder", "file")
        lost = f"a {found} or a link, but a {needed} is needed"
    elif is_folder:
        others = [path.name for path in destination.iterdir() if not (WRITTEN.fullmatch(path.name) and path.is_file())]
        lost = f"holds {others[0]}, which would be lost" if others else ""
    else:
        with open(destination, "rb") as file:
            start = file.read(START)
        if not any(start.startswith(begin, at) and mark in start for at, begin, mark in MARKS):
            lost = "this file is not an export, and would be lost"
    if lost:
        raise UserError(f"{shown(destination)}: {lost}; choose another name")


def publish(destination: Path, write: Callable[[Path], object], *, is_folder: bool, force: bool) -> None:
    """Call `write` with a free path beside `destination`, then give what it wrote that name.

    When `write` raises, or a signal ends the program, nothing is left and `destination` is as it was. What a killed export of
    this name left is removed. Raises NotWritten, and as `check_destination` does, also for a destination
    that has appeared meanwhile.
    """
    remove_left_behind(destination.parent, re.compile(re.escape(destination.name)))
    old = aside(destination.with_name(f"{destination.name}{OLD}"))

    def undo() -> None:
        if os.path.isdir(old) and not os.path.lexists(destination):
            os.rename(old, destination)
        discard(aside(destination))
        discard(old)

    with ending_at_once(undo):
        try:
            with publishing(destination) as path:
                write(path)
                if path.is_dir():
                    sync_folder(path)
                check_destination(destination, is_folder=is_folder, force=force)
                if destination.is_dir():  # a folder cannot be replaced in one step
                    discard(old)
                    os.rename(destination, old)
        except OSError as error:
            problem = f"not written ({error.strerror or error}); {what_to_do(error, 'write into another folder')}"
            raise NotWritten.of(error, f"{shown(destination)}: {problem}") from None
        finally:
            undo()
    remove_left_behind(destination.parent, re.compile(re.escape(destination.name + OLD)))
