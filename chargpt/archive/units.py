"""Any file as characters that a model knows, and the bytes between them."""

from dataclasses import dataclass

import numpy as np

from chargpt.text.tokenizer import Tokenizer, code_points, utf8_lengths


@dataclass(frozen=True, kw_only=True)
class Units:
    """A file: its known characters, and the bytes of everything else, each group in front of a known character."""

    ids: np.ndarray  # of the known characters, (n,) int64
    escaped: bytes  # the bytes of everything else, one after another
    counts: np.ndarray  # how many of them come before each known character, and after the last one, (n + 1,) int64


def symbols_of(tokenizer: Tokenizer) -> int:
    """The number of ids that stand for one character or byte each: all but that of the folded characters."""
    return tokenizer.vocab_size - tokenizer.folded


def split_units(data: bytes, tokenizer: Tokenizer) -> Units:
    """The units of any bytes. Nothing is normalised. What is not UTF-8, and what the vocabulary lacks, is escaped."""
    if tokenizer.characters is None:
        ids = np.frombuffer(data, np.uint8).astype(np.int64)
        return Units(ids=ids, escaped=b"", counts=np.zeros(len(ids) + 1, np.int64))
    points = code_points(data.decode("utf-8", "surrogateescape"))  # a byte that is not UTF-8 becomes one of 128 surrogates
    ids = np.take(tokenizer.table(), points, mode="clip").astype(np.int64)
    known = (ids >= 0) & (ids < symbols_of(tokenizer))
    lengths = utf8_lengths(points)
    escaped = np.frombuffer(data, np.uint8)[np.repeat(~known, lengths)].tobytes()
    before = np.cumsum(np.where(known, 0, lengths))[known]
    counts = np.diff(before, prepend=0, append=len(escaped))
    return Units(ids=ids[known], escaped=escaped, counts=counts)


def join_units(units: Units, tokenizer: Tokenizer) -> bytes:
    """The bytes that `split_units` was given."""
    if tokenizer.characters is None:
        return units.ids.astype(np.uint8).tobytes()
    characters = [c.encode() for c in tokenizer.characters]
    parts, at, done = [], 0, 0
    for i in np.flatnonzero(units.counts).tolist():
        parts += [characters[id] for id in units.ids[done:i].tolist()]
        parts.append(units.escaped[at : at + int(units.counts[i])])
        at, done = at + int(units.counts[i]), i
    parts += [characters[id] for id in units.ids[done:].tolist()]
    return b"".join(parts)
