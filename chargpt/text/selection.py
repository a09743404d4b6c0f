"""Which sources the TEXT arguments mean: files, folders, standard input, pipes and named corpora."""

import difflib
import fnmatch
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from chargpt.terminal import UserError, shown
from chargpt.text.formats import plain_name
from chargpt.text.named_corpora import DEFAULT, NAMES, named_corpus
from chargpt.text.sources import Source, Sources
from chargpt.text.walk import walk


def select_sources(texts: Sequence[str], *, val_text: str, pattern: str, root: Path, copies: Path) -> Sources:
    """The sources that `texts` and `val_text` mean: files, folders (their files that match `pattern`), `-`, named corpora.

    A stream that can be read only once (standard input, a pipe) is first copied to an unnamed file in the folder `copies`.
    Raises UserError.
    """
    texts, hidden = list(texts) or [DEFAULT], []
    train = [source for text in texts for source in _sources(text, pattern, root, copies, hidden)]
    val = _sources(val_text, pattern, root, copies, hidden) if val_text else []
    held_out = {source.path.resolve() for source in val if source.path}
    rest = [source for source in train if not (source.path and source.path.resolve() in held_out)]
    if not rest:
        raise UserError(f"data.val_text: {val_text} is the training text as well; give another, or use data.val_fraction")
    notes = [f"{len(rest) + len(val):,} files"] if len(rest) + len(val) > 1 else []
    if len(rest) < len(train):
        notes.append(f"files removed from the training text because they are validation text: {len(train) - len(rest):,}")
    if hidden:
        notes.append(f"hidden files and folders skipped: {len(hidden):,}")
    return Sources(train=rest, val=val, notes=notes)


def run_name(texts: Sequence[str]) -> str:
    """The default name of a run on `texts`: that of the first one without its suffixes."""
    text = texts[0] if texts else DEFAULT
    if text == "-":
        return "stdin"
    path = Path(text)
    return path.resolve().name or "text" if path.is_dir() else plain_name(path).stem


def absolute_text(text: str) -> str:
    """`text` as it can be found from any working folder: a path is made absolute; `-` and named corpora stay as they are."""
    return text if text in ("", "-") or not os.path.exists(text) else str(Path(text).resolve())


def _sources(text: str, pattern: str, root: Path, copies: Path, hidden: list[Path]) -> list[Source]:
    """The sources that one TEXT means. Hidden files are skipped and appended to `hidden`."""
    path = Path(text)
    if text == "-":
        return [_copied("standard input", sys.stdin.buffer, copies)]
    if path.is_dir():
        return _in_folder(path, pattern, hidden)
    if path.is_file():
        return [Source(label=shown(path), path=path)]
    if path.exists():
        with open(path, "rb") as pipe:
            return [_copied(shown(path), pipe, copies)]
    if text in NAMES:
        return named_corpus(text, root=root)
    raise UserError(f"{text}: no such file or folder; {_suggestion(path)}")


def _copied(label: str, stream: BinaryIO, folder: Path) -> Source:
    if stream.isatty():
        print(f"reading {label}; end it with Ctrl-D", file=sys.stderr)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        copy = tempfile.TemporaryFile(dir=folder)  # it has no name: the system removes it when the process ends
        shutil.copyfileobj(stream, copy, 2**20)
        copy.flush()
    except OSError as error:
        reason = f"{error.strerror} while copying it to {shown(folder)}"
        raise UserError(f"{label}: {reason}; free some space there, or name another folder in data.cache") from None
    return Source(label=label, copy=copy)


def _in_folder(folder: Path, pattern: str, hidden: list[Path]) -> list[Source]:
    """The files anywhere below `folder` that match `pattern`, sorted."""
    files = list(walk(folder, hidden=hidden))
    matching = [path for path in files if fnmatch.fnmatch(plain_name(path), pattern)]
    if not matching:
        raise UserError(f"{shown(folder)}: {_no_match(files, pattern)}")
    return [Source(label=shown(path), path=path, in_folder=True) for path in matching]


def _no_match(files: list[Path], pattern: str) -> str:
    if not files:
        return "an empty folder; give a folder with texts"
    suffix, count = Counter(plain_name(path).suffix for path in files).most_common(1)[0]
    wanted = f"*{suffix}" if suffix else "*"
    return f"none of its {len(files):,} files matches {pattern}, {count:,} match {wanted}; add data.pattern='{wanted}'"


def _suggestion(path: Path) -> str:
    siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, [*NAMES, *siblings], n=1)
    if close:
        return f"did you mean {close[0] if close[0] in NAMES else path.parent / close[0]}?"
    return f"give a text file, a folder, - for standard input, or one of {', '.join(NAMES)}"
