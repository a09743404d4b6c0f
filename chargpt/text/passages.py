"""The passages by which a text is recognised, in any edition: windows of its letters, without lines, quotes and accents. A
start has a file of those of its texts, each as the distance from the one before."""

import contextlib
import unicodedata
from pathlib import Path

import numpy as np

from chargpt.text.cache import EncodedText
from chargpt.text.comparison import window_hashes
from chargpt.text.facts import sample

PASSAGES = "passages.uint16"
MARKED = 1280  # of so many windows, one is kept, by its hash
BITS = 30  # of what is kept of a hash
COMPARED = 500_000  # characters of a split that are compared with a start's; of a longer one, pieces from all over
# A start has read a text if it knows this share of its passages and one more, or half of a few; by chance, one of 20,000.
READ = 0.1


def has_read(folder: Path, text: EncodedText) -> bool:
    """Whether the start in this folder has read a text or its validation split, or much of it; False for another model."""
    with contextlib.suppress(OSError):
        known, characters = np.cumsum(np.fromfile(folder / PASSAGES, "<u2"), dtype=np.int64), text.tokenizer.characters or ""
        train, val = (passages_of(sample(split, COMPARED), characters) for split in (text.train, text.val))
        parts = [(len(part), np.isin(part, known).sum()) for part in (np.append(train, val), val)]
        return any(hits >= max(1, min(1 + READ * size, size / 2)) for size, hits in parts)
    return False


def passages_of(ids: np.ndarray, characters: str) -> np.ndarray:
    """The hashes of the passages of a text in this vocabulary, ascending; ids beyond it are no letters."""
    letters = np.array([*map(_letter, characters), 0], np.uint32)
    points = letters.take(ids, mode="clip")
    hashes, limit = window_hashes(points[points > 0]), 2**64 // MARKED
    return np.unique(hashes[hashes < limit] // np.uint64(limit >> BITS)).astype(np.int64)


def _letter(character: str) -> int:
    """The code point of a small letter without its accents; 0 for what is none."""
    base = unicodedata.normalize("NFKD", character)[0].lower()[0]
    return ord(base) if base.isalpha() else 0
