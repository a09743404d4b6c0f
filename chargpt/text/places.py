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
from chargpt.text.reading import TRAIN, TextReader, reading_of
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
        config = tokenizer.settings(reading_of(config, sources))
        # A file without a size is empty, or it is one of /proc, which may block its reader.
        some, others = ([source for source in part if source.size != 0] for part in (sources.train, sources.val))
        reader = TextReader(dataclasses.replace(sources, train=some, val=others), config)
        done, waiting, origin, line = 0, deque(sorted(set(wanted))), None, 1
        for begins, split, piece in stack.enter_context(contextlib.closing(reader.pieces())):
            if split != TRAIN:
                continue
            if begins is not None and begins is not origin:  # a separator is in no document
                origin, line = begins, begins.line
            assert origin is not None
            ids = (code_points(piece) if tokenizer.characters is None else tokenizer.ids_of(piece))[: len(train) - done]
            if not waiting or not np.array_equal(ids, train[done : done + len(ids)]):
                break
            counted = 0
            while waiting and waiting[0] < done + len(ids):
                number = waiting.popleft()
                line += 0 if origin.is_record else piece.count("\n", counted, number - done)
                found[number], counted = (origin.source.label, line), number - done
            line += 0 if origin.is_record else piece.count("\n", counted)
            done += len(ids)
    return found
