"""Where a character of the training text occurs: the file and the line. sources.py has where text comes from."""

import contextlib
import dataclasses
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from chargpt.config import DataConfig
from chargpt.errors import UserError
from chargpt.text.cache import EncodedText
from chargpt.text.reading import TRAIN, Origin, TextReader, reading_of
from chargpt.text.sources import can_be_read_again, needs_download, select_sources
from chargpt.text.tokenizer import Tokenizer, code_points


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place in a file."""

    file: str  # its label in messages
    line: int  # from 1; in JSON lines and tables, that where the record begins


def find_places(
    wanted: Iterable[int], encoded: EncodedText, config: DataConfig, *, texts: list[str], root: Path
) -> dict[int, Place]:
    """Where each of the characters with the numbers `wanted` (from 0) of the training split occurs in the files `texts`.

    `config` and `texts` are those of the run. The files are read up to the last place, and compared with the training split. A
    place is absent if they cannot be read again, or if what they hold up to there is no longer the training text. The run may
    be a stranger's: nothing but files on this machine is opened.
    """
    found: dict[int, Place] = {}
    if config.shuffle != "none" or config.split == "blocks" or config.items:  # its order is not that of the files
        return found
    for text in filter(None, [*texts, config.val_text]):
        if is_on_a_share(text) or needs_download(text, root=root) or not can_be_read_again(text):
            return found
    with contextlib.suppress(UserError, OSError):
        cache = root / "data" / "cache"
        sources = select_sources(texts, val_text=config.val_text, pattern=config.pattern, root=root, copies=cache)
        config = encoded.tokenizer.settings(reading_of(config, sources))
        # A file without a size is empty, or it is one of /proc, which may block its reader.
        train, val = ([source for source in some if source.size != 0] for some in (sources.train, sources.val))
        sources = dataclasses.replace(sources, train=train, val=val)
        reader = TextReader(sources, config, progress=tqdm(disable=True))
        with contextlib.closing(reader.pieces()) as pieces:
            found.update(_places(sorted(set(wanted)), encoded.train, pieces, encoded.tokenizer))
    return found


def is_on_a_share(path: str, *, drive_of: Callable[[str], tuple[str, str]] = os.path.splitdrive) -> bool:
    """Whether a path on Windows names another machine or a device (`\\\\HOST\\SHARE`, `\\\\.\\pipe`)."""
    return drive_of(path)[0].replace("/", "\\").startswith("\\\\")


def _places(
    wanted: list[int],
    train: np.ndarray,
    pieces: Iterator[tuple[Origin | None, int, str]],
    tokenizer: Tokenizer,
) -> Iterator[tuple[int, Place]]:
    """Each of the ascending numbers `wanted` with its place, as long as the `pieces` are those of `train`."""
    done, waiting = 0, deque(wanted)
    origin: Origin | None = None
    line = 1
    for begins, split, piece in pieces:
        if not waiting:
            return
        if split != TRAIN:
            continue
        if begins is not None and begins is not origin:
            origin, line = begins, begins.line
        assert origin is not None, "a separator comes after a document"
        ids = code_points(piece) if tokenizer.characters is None else tokenizer.ids_of(piece)
        ids = ids[: len(train) - done]
        if not np.array_equal(ids, train[done : done + len(ids)]):
            return
        counted = 0
        while waiting and waiting[0] < done + len(ids):
            number = waiting.popleft()
            line += 0 if origin.is_record else piece.count("\n", counted, number - done)
            yield number, Place(file=origin.source.label, line=line)
            counted = number - done
        line += 0 if origin.is_record else piece.count("\n", counted)
        done += len(ids)
