"""Where a character of the training text occurs: the file and the line. sources.py has where text comes from."""

import contextlib
import dataclasses
from collections import deque
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from chargpt.config import DataConfig
from chargpt.errors import UserError
from chargpt.text.cache import EncodedText
from chargpt.text.document import TRAIN, Origin
from chargpt.text.reading import TextReader, reading_of
from chargpt.text.sources import can_be_read_again, is_on_a_share, needs_download, select_sources
from chargpt.text.tokenizer import code_points


def find_places(
    wanted: Iterable[int], encoded: EncodedText, config: DataConfig, *, texts: list[str], root: Path
) -> dict[int, tuple[str, int]]:
    """Where each of the characters with the numbers `wanted` (from 0) of the training split occurs in the files `texts`: the
    label of the file, and the line, from 1; in JSON lines and tables, that where the record begins.

    `config` and `texts` are those of the run. The files are read up to the last place, and compared with the training split. A
    place is absent if they cannot be read again, or if what they hold up to there is not the training text in its order. The
    run may be a stranger's: nothing but files on this machine is opened.
    """
    found: dict[int, tuple[str, int]] = {}
    for text in filter(None, [*texts, config.val_text]):
        if is_on_a_share(text) or needs_download(text, root=root) or not can_be_read_again(text):
            return found
    train, tokenizer = encoded.train, encoded.tokenizer
    with contextlib.suppress(UserError, OSError), contextlib.ExitStack() as stack:
        sources = select_sources(texts, config, root=root)
        # A file without a size is empty, or it is one of /proc, which may block its reader.
        some, others = ([source for source in part if source.size != 0] for part in (sources.train, sources.val))
        config = tokenizer.settings(reading_of(config, sources))
        reader = TextReader(dataclasses.replace(sources, train=some, val=others), config)
        done, waiting, place = 0, deque(sorted(set(wanted))), _Place()
        for origin, split, piece in stack.enter_context(contextlib.closing(reader.pieces())):
            if split != TRAIN:
                continue
            ids = (code_points(piece) if tokenizer.characters is None else tokenizer.ids_of(piece))[: len(train) - done]
            if not waiting or not np.array_equal(ids, train[done : done + len(ids)]):
                break
            place.begin(origin, piece)
            while waiting and waiting[0] < done + len(ids):
                number = waiting.popleft()
                found[number] = place.at(number - done)
            done += len(ids)
            place.at(len(piece))
    return found


class _Place:
    """A place that moves on in a document, which comes in pieces."""

    def __init__(self) -> None:
        self._origin: Origin | None = None
        self._line, self._piece, self._counted = 1, "", 0

    def begin(self, origin: Origin | None, piece: str) -> None:
        """Go to the beginning of a piece; a separator, which has no origin, is in no document."""
        if origin is not None and origin is not self._origin:
            self._origin, self._line = origin, origin.line
        self._piece, self._counted = piece, 0

    def at(self, number: int) -> tuple[str, int]:
        """The label of the file and the line of a character of the piece."""
        assert self._origin is not None, "a document comes before a separator"
        if not self._origin.is_record:
            self._line += self._piece.count("\n", self._counted, number)
        self._counted = number
        return self._origin.source.label, self._line
