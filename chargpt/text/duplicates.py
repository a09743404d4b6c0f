"""Which of several sources have the same content, so that each content is read once."""

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence

from chargpt.text.source import Source

CHUNK = 2**20  # bytes read at a time
HEAD = 2**16  # bytes that are compared first


def duplicates(sources: Sequence[Source]) -> dict[Source, Source]:
    """For each source with the same content as an earlier one, the earlier one. Empty sources are not compared.

    Files are equal if they are the same file on the disk or have the same content. The whole content is read only where size
    and beginning are equal. Raises UserError if a source cannot be read.
    """
    found: dict[Source, Source] = {}
    for group in _groups(sources, lambda source: source.identity or source):
        found |= dict.fromkeys(group[1:], group[0])
    distinct = [source for source in sources if source not in found and source.size != 0]
    if all(source.size is not None for source in distinct):  # the size of a compressed text is not known
        candidates = _groups(distinct, lambda source: source.size)
    else:
        candidates = [distinct]
    for candidate in candidates:
        for group in _groups(candidate, _head):
            for same in _groups(group, _digest):
                found |= dict.fromkeys(same[1:], same[0])
    return found


def _groups(sources: Iterable[Source], key: Callable[[Source], Hashable]) -> list[list[Source]]:
    """The sources with equal keys, in groups of two or more."""
    by_key: dict[Hashable, list[Source]] = defaultdict(list)
    for source in sources:
        by_key[key(source)].append(source)
    return [group for group in by_key.values() if len(group) > 1]


def _head(source: Source) -> bytes:
    chunks = source.chunks(HEAD)
    return hashlib.sha256(next(chunks, b"")).digest()


def _digest(source: Source) -> Hashable:
    """A hash of the content; for an empty source a value that no other source has."""
    digest, chunks = hashlib.sha256(), source.chunks(CHUNK)
    first = next(chunks, b"")
    if not first:
        return source
    for chunk in itertools.chain([first], chunks):
        digest.update(chunk)
    return digest.digest()
