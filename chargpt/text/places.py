"""Where a character of the training text occurs: the file and the line. sources.py has where text comes from."""

import contextlib
import dataclasses
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from chargpt.config import DataConfig
from chargpt.errors import UserError
from chargpt.text.cache import EncodedText
from chargpt.text.corpora import needs_download
from chargpt.text.document import TRAIN
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
        reader = TextReader(dataclasses.replace(sources, train=train, val=val), settings)
        tokenizer, ids, start, line, now = encoded.tokenizer, encoded.train, 0, 0, None
        with contextlib.closing(reader.pieces()) as pieces:
            for origin, _, text in (one for one in pieces if one[1] == TRAIN):
                read = code_points(text) if tokenizer.characters is None else tokenizer.ids_of(text)
                end = min(start + len(read), len(ids))
                if not np.array_equal(read[: end - start], ids[start:end]):
                    break
                if origin not in (None, now):  # a separator is of the document before it
                    now, line = origin, origin.line
                assert now is not None, "a document comes before a separator"
                lines = "" if now.is_record else text
                for number in (one for one in wanted if start <= one < end):
                    places[number] = now.source.label, line + lines.count("\n", 0, number - start)
                start, line = end, line + lines.count("\n")
                if wanted[-1] < end:
                    break
    return places
