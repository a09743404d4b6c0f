"""Where a character of the training text occurs: the file and the line. sources.py has where text comes from."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from chargpt.config import DataConfig
from chargpt.errors import UserError
from chargpt.text.cache import EncodedText
from chargpt.text.corpora import needs_download
from chargpt.text.document import TRAIN, Origin
from chargpt.text.reading import TextReader, reading_of
from chargpt.text.sources import can_be_read_again, is_on_a_share, select_sources
from chargpt.text.tokenizer import code_points


def find_places(
    wanted: Iterable[int], encoded: EncodedText, config: DataConfig, *, texts: list[str], root: Path
) -> dict[int, tuple[str, int]]:
    """Where each of the characters with the numbers `wanted` (from 0) of the training split occurs in the files `texts`: the
    label of the file, and the line, from 1; in JSON lines and tables, that where the record begins. `config` and `texts` are
    those of the run. The files are read up to the last place, and compared with the training split. A place is absent if they
    cannot be read again, or if what they hold up to there is not the training text in its order. The run may be a stranger's:
    nothing but files on this machine is opened."""
    places, wanted, named = dict[int, tuple[str, int]](), sorted(wanted), [*filter(None, [*texts, config.val_text])]
    if any(is_on_a_share(one) or needs_download(one, root=root) or not can_be_read_again(one) for one in named) or not wanted:
        return places
    with contextlib.suppress(UserError, OSError):
        sources = select_sources(texts, config, root=root)
        settings = encoded.tokenizer.settings(reading_of(config, sources))
        # A file without a size is empty, or it is one of /proc, which may block its reader.
        train, val = ([source for source in part if source.size != 0] for part in (sources.train, sources.val))
        for piece in _read_again(TextReader(dataclasses.replace(sources, train=train, val=val), settings), encoded):
            end = piece.start + len(piece.text)
            places |= {number: piece.place(number) for number in wanted if piece.start <= number < end}
            if wanted[-1] < end:
                break
    return places


class _Piece(NamedTuple):
    """A part of the training text."""

    start: int  # the number of its first character
    text: str
    origin: Origin  # of its document, or of the one before a separator
    line: int  # of its first character

    def place(self, number: int) -> tuple[str, int]:
        """The label of the file and the line of a character."""
        lines = 0 if self.origin.is_record else self.text.count("\n", 0, number - self.start)
        return self.origin.source.label, self.line + lines


def _read_again(reader: TextReader, encoded: EncodedText) -> Iterator[_Piece]:
    """The training text in pieces, as long as the files hold it in its order."""
    tokenizer, piece, start = encoded.tokenizer, None, 0
    with contextlib.closing(reader.pieces()) as pieces:
        for origin, _, text in (one for one in pieces if one[1] == TRAIN):
            ids = (code_points(text) if tokenizer.characters is None else tokenizer.ids_of(text))[: len(encoded.train) - start]
            if not np.array_equal(ids, encoded.train[start : start + len(ids)]):
                break
            if piece and origin in (None, piece.origin):
                piece = _Piece(start, text, piece.origin, piece.place(start)[1])
            else:
                assert origin is not None, "a document comes before a separator"
                piece = _Piece(start, text, origin, origin.line)
            yield piece
            start += len(ids)
