"""Where text comes from: the sources that TEXT arguments mean. Add a new source of text here. `_sources` decides what one TEXT
is: a file, the files of a folder, standard input, a pipe, or a corpus of `NAMES`. `formats.py` knows binary files, and files
whose records have fields; `source.py` unpacks compressed ones."""

import contextlib
import errno
import fnmatch
import hashlib
import itertools
import os
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from chargpt.canonical import canonical, path_on_disk
from chargpt.config import DataConfig
from chargpt.errors import Message, NotWritten, Option, UserError, Words, nearest, what_to_do
from chargpt.files import WINDOWS, portable
from chargpt.formatting import shown
from chargpt.project import HOME, STATE, STEP_NAME
from chargpt.screen import log
from chargpt.text.formats import CHECKPOINT, read_head, refuse_checkpoint
from chargpt.text.not_text import binary_format
from chargpt.text.source import DEFAULT, NAMES, Source, Sources, files_below, mapped_numbers, plain_name

ANOTHER_CACHE = f"set data.cache (or {HOME}, for runs too) to another folder"
MAX_NAMED = 3  # kinds of files that are left out, which get a line
MOST_COMPARED = 2**24  # bytes of files whose lines are compared
# Bytes of a line that does not repeat by chance, such lines of a file, and the share of them that is that of another draft.
LONG_LINE, FEWEST_LINES, TWIN = 12, 10, 0.6
CHUNK = 2**20  # bytes read at a time


def cache_folders(config: DataConfig, *, root: Path) -> list[Path]:
    """Where an encoded text may be: the folder in `config`, if it names one, and the default."""
    named = [Path(config.cache)] if config.cache else []
    return list(dict.fromkeys([*named, root / "data" / "cache"]))


def select_sources(texts: Sequence[str], config: DataConfig, *, root: Path) -> Sources:
    """The sources that `texts` and data.val_text mean: files, folders (their files that match data.pattern), `-`, named
    corpora. Standard input or a pipe is first copied to an unnamed file in the cache. Raises UserError."""
    texts, skipped = [*map(path_on_disk, texts)] or [DEFAULT], Counter[str | Path]()
    if [*texts, config.val_text].count("-") > 1:
        raise UserError("-: standard input given twice; it can be read only once")
    train = [source for text in texts for source in _sources(text, config, root, skipped)]
    val = _sources(path_on_disk(config.val_text), config, root, skipped) if config.val_text else []
    train, val = _once(train, val, skipped)
    if not train:
        what = f"data.val_text: {config.val_text} is the training text as well"
        raise UserError(f"{what}; give another, or use data.val_fraction")
    notes = [f"{what}: {count:,}" for what, count in skipped.items() if isinstance(what, str)]
    notes = [f"{len(train + val):,} files"] * (len(train + val) > 1) + notes
    left_out = _ways_in([what for what in skipped if isinstance(what, Path)], config.pattern)
    return Sources(train=train, val=val, notes=notes, left_out=[*left_out])


def _once(train: list[Source], val: list[Source], skipped: Counter[str | Path]) -> tuple[list[Source], list[Source]]:
    """Both without a source that has the same content as an earlier one. Raises UserError if the user has named it."""
    same, held_out = _duplicates(val + train), {*val}
    for source, first in same.items():
        if first in held_out and source not in held_out:
            skipped["files removed from the training text because they are validation text"] += 1
        elif source.in_folder or first.in_folder:
            example = next(iter(same)).label
            skipped[f"files that are the same as another file, read once ({example}{', ...' * (len(same) > 1)})"] += 1
        else:
            raise UserError(f"{source.label}: the same text as {first.label}; give it once")
    return [source for source in train if source not in same], [source for source in val if source not in same]


def _duplicates(sources: Sequence[Source]) -> dict[Source, Source]:
    """For each source with the same content as an earlier one, the earlier one. Empty sources are not compared. The whole
    content is read only where size and beginning are equal. Raises UserError if a source cannot be read."""
    groups = [[source for source in sources if source.size != 0]]
    are_sizes_known = all(source.size is not None for source in sources)  # that of a compressed text is not
    keys: list[Callable[[Source], Hashable]] = [lambda source: source.size] * are_sizes_known
    for key in (*keys, lambda source: _digest(source, chunks=1), _digest):
        by_key: dict[Hashable, list[Source]] = defaultdict(list)
        for source in itertools.chain(*groups):
            by_key[key(source)].append(source)
        groups = [group for group in by_key.values() if len(group) > 1]
    return {source: group[0] for group in groups for source in group[1:]}


def _digest(source: Source, *, chunks: int | None = None) -> Hashable:
    """A hash of the content, or of so many chunks of it; for an empty source a value that no other source has."""
    digest, is_empty = hashlib.sha256(), True
    for chunk in itertools.islice(source.chunks(CHUNK), chunks):
        digest.update(chunk)
        is_empty = False
    return source if is_empty else digest.digest()


def run_name(texts: Sequence[str]) -> str:
    """The default name of a run on `texts`: that of the first one without its suffixes, as a name that every system allows."""
    text = texts[0] if texts else DEFAULT
    if text == "-":
        return "stdin"
    path = Path(text)
    name = path.resolve().name if not is_on_a_share(text) and path.is_dir() else plain_name(path).stem
    name = "".join(filter(str.isprintable, name))  # without control characters, and bytes that are no character in this locale
    name = portable(name).lstrip("-") or "text"  # a name that begins with a dash would be taken for an option
    return f"{name}-text" if STEP_NAME.fullmatch(name) else name


def is_on_a_share(text: str) -> bool:
    """Whether Windows would ask another computer for the path `text`, \\\\HOST\\SHARE: a stranger's run may name any."""
    return os.path.splitdrive(text)[0].replace("/", "\\").startswith("\\\\")


def absolute_text(text: str) -> str:
    """`text` as it can be found from any working folder: a path is made absolute; `-` and named corpora stay as they are."""
    text = path_on_disk(text)
    return text if text in ("", "-") or not os.path.exists(text) else str(Path(text).resolve())


def can_be_read_again(text: str) -> bool:
    """Whether a TEXT argument names an existing file or folder or a named corpus: not standard input or a pipe."""
    return text != "-" and (text in NAMES or os.path.isfile(text) or os.path.isdir(text))


def _sources(text: str, config: DataConfig, root: Path, skipped: Counter[str | Path]) -> list[Source]:
    """The sources that one TEXT means. `skipped` counts what is left out in folders."""
    check_found([text])
    path, copies = Path(text), cache_folders(config, root=root)[0]
    if text == "-":
        return [_copied("standard input", sys.stdin.buffer, copies)]
    if path.is_dir():
        return _in_folder(path, config.pattern, skipped)
    if path.is_file():
        if path.name == CHECKPOINT:
            refuse_checkpoint(path)
        return [Source(label=shown(path), path=path)]
    if not path.exists():
        from chargpt.text.corpora import named_corpus  # most texts are files, and need no network

        return named_corpus(text, root=root)
    if path.is_fifo():
        log(f"reading the pipe {shown(path)}")  # opening it waits for a writer
        with open(path, "rb") as pipe:
            return [_copied(shown(path), pipe, copies)]
    raise UserError(f"{shown(path)}: a device or a socket, not a text; give a file, a folder or a pipe")


def check_found(texts: Sequence[str]) -> None:
    """Raise UserError for a TEXT argument that is not a file, a folder or a named corpus."""
    for text in texts:
        path = Path(path_on_disk(text))
        if text == "-" or text in NAMES or path.exists():
            continue
        if path.is_symlink():
            raise UserError(f"{text}: a link to a file that does not exist, or to itself; correct it, or give a text file")
        siblings = {entry.name: entry for entry in path.parent.iterdir()} if path.parent.is_dir() else {}
        what_to_do = f"give a text file, a folder, - for standard input, or one of {', '.join(NAMES)}"
        meant = nearest(path.name, {name: str(siblings.get(name, name)) for name in (*NAMES, *siblings)}, otherwise=what_to_do)
        raise UserError(f"{text}: no such file or folder; {meant}")


def _copied(label: str, stream: BinaryIO, folder: Path) -> Source:
    """A copy of `stream`. It may take half of the free space: the rest is for its ids, and a stream may never end."""
    if stream.isatty():
        log(f"reading {label}; end it with {'Ctrl-Z and Enter' if WINDOWS else 'Ctrl-D'}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        size, limit = 0, shutil.disk_usage(folder).free // 2
        with tempfile.TemporaryFile(dir=folder) as copy:  # it has no name: the system removes it when nothing uses it any more
            while size <= limit and (chunk := stream.read(CHUNK)):
                size += copy.write(chunk)
            copy.flush()
            if size > limit:
                raise OSError(errno.ENOSPC, f"more than {limit:,} bytes, which is half of the free space,")
            content = mapped_numbers(copy, np.uint8).data if size else b""
            return Source(label=label, content=content)
    except OSError as error:
        what = f"{label}: {error.strerror} while copying it to {shown(folder)}; {what_to_do(error, ANOTHER_CACHE)}"
        raise NotWritten.of(error, what) from None


def _in_folder(folder: Path, pattern: str, skipped: Counter[str | Path]) -> list[Source]:
    """The files anywhere below `folder` that match `pattern`, sorted."""
    files = list(files_below(folder, skipped))
    patterns = [canonical(one.strip().lower()) for one in pattern.split(",")]
    plain = {path: canonical(plain_name(path).name.lower()) for path in files}
    matching = [path for path, name in plain.items() if any(fnmatch.fnmatchcase(name, one) for one in patterns)]
    if not matching:
        raise _nothing_in(folder, files, pattern)
    runs = {path.parent.parent for path in files if path.name == STATE and STEP_NAME.fullmatch(path.parent.name)}
    if run := next((run for path in matching for run in path.parents if run in runs), None):
        raise UserError(f"{shown(folder)}: {shown(run)} is a run, whose files are not text; give a folder without runs")
    skipped.update(sorted({*files} - {*matching}))
    return [Source(label=shown(path), path=path, in_folder=True) for path in matching]


def _ways_in(files: Sequence[Path], pattern: str) -> Iterator[Words]:
    """What to do about `files` of folders that a `pattern` leaves out: a line for each of the most frequent ends of names.
    Without a pattern, they are all that there is."""
    by_suffix: dict[str, list[Path]] = defaultdict(list)
    for path in files:
        by_suffix[plain_name(path).suffix.lower()].append(path)
    for suffix, (first, *more) in sorted(by_suffix.items(), key=lambda one: -len(one[1]))[:MAX_NAMED]:
        what, how = shown(first) + f" and {len(more):,} more" * bool(more), None
        with contextlib.suppress(UserError):  # it cannot be read
            how = binary_format(read_head(Source(label=shown(first), path=first)), path=first)
        these = "these too" if pattern else "these"
        only = Message(f"to read {these}, add ", Option("data.pattern", f"{pattern},*{suffix}".lstrip(",")))
        yield Message(f"{what}: ", how or (only if suffix or not pattern else "to read such a file, give its path as a TEXT"))


def twins(sources: Sequence[Source]) -> Iterator[Words]:
    """A line for each file of a folder, most of whose lines an earlier one has, such as an old draft; not of a long text."""
    files = [source for source in sources if source.in_folder and source.size]
    if sum(source.size or 0 for source in files) > MOST_COMPARED:
        return
    first_with: dict[bytes, Source] = {}
    for source in files:
        lines = {line for line in b"".join(source.chunks(CHUNK)).splitlines() if len(line) >= LONG_LINE}
        common = Counter(first_with[line] for line in lines if line in first_with)
        twin, count = next(iter(common.most_common(1)), (source, 0))
        if len(lines) >= FEWEST_LINES and count > TWIN * len(lines):
            what = f"{source.label}: {count / len(lines):.0%} of its lines are those of {twin.label}"
            yield f"{what}; to learn them once, take it out of the folder"
        first_with |= dict.fromkeys(lines - first_with.keys(), source)


def _nothing_in(folder: Path, files: list[Path], pattern: str) -> UserError:
    """Why none of the `files` below `folder` is read. Raises it if it is what nanoGPT saves."""
    refuse_checkpoint(folder)
    if not files:
        return UserError(f"{shown(folder)}: an empty folder; give a folder with texts")
    what = f"{shown(folder)}: none of its {len(files):,} files matches {pattern}; "
    return UserError(what, next(_ways_in(files, "")))
