"""What other programs make of the same text: gzip, bzip2 and xz, and the n-gram model of the text report."""

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from chargpt.text.cache import EncodedText
from chargpt.text.facts import TRAIN_SAMPLE, VAL_SAMPLE, repeated_lines, sample
from chargpt.text.ngram import ngram_probabilities


class Baselines:
    """Compresses a text that comes in pieces, with each program at its best setting."""

    def __init__(self) -> None:
        self._packers: dict[str, Any] = {
            "gzip -9": zlib.compressobj(9, wbits=31),
            "bzip2 -9": bz2.BZ2Compressor(9),
            "xz -9e": lzma.LZMACompressor(preset=9 | lzma.PRESET_EXTREME),
        }
        self._sizes = dict.fromkeys(self._packers, 0)

    def add(self, data: bytes) -> None:
        """Compress the next piece of the text."""
        for name, packer in self._packers.items():
            self._sizes[name] += len(packer.compress(data))

    def sizes(self) -> dict[str, int]:
        """The compressed size of the whole text in bytes by each program. Call once."""
        return {name: self._sizes[name] + len(packer.flush()) for name, packer in self._packers.items()}


class NgramBits:
    """The n-gram model of the text report on the first VAL_SAMPLE characters of a text that comes in pieces."""

    def __init__(self, corpus: Callable[[], EncodedText]) -> None:
        """`corpus` returns the training text of the run, or raises an error if it cannot be found."""
        self._corpus = corpus
        self._ids = np.empty(0, np.int64)

    def add(self, ids: np.ndarray) -> None:
        """Keep as many of the ids as are needed. -1 is an unknown character."""
        if len(self._ids) < VAL_SAMPLE:
            self._ids = np.concatenate((self._ids, ids))[:VAL_SAMPLE]

    def in_training(self) -> float:
        """The share of the text that is lines of the training text; 0 where that cannot be told."""
        try:
            corpus = self._corpus()
        except ValueError:
            return 0.0
        texts = (corpus.tokenizer.decode(ids) for ids in (sample(corpus.train, TRAIN_SAMPLE), self._known()))
        return repeated_lines(*texts)[1]

    def _known(self) -> np.ndarray:
        return self._ids[self._ids >= 0]

    def bits(self, *, unknown: float) -> tuple[int, float] | None:
        """The order of the model, and its bits per character; None where it cannot be computed.

        An unknown character costs `unknown` bits, and the model does not see it.
        """
        try:
            corpus = self._corpus()
        except ValueError:
            return None
        known = self._known()
        if len(known) < 5 or len(corpus.train) < 5:
            return None
        train = sample(corpus.train, TRAIN_SAMPLE)
        probability = ngram_probabilities(train, known, vocab_size=corpus.tokenizer.vocab_size)
        bits = -np.log2(probability).mean()
        return len(known) - len(probability), float(bits * len(known) + unknown * (len(self._ids) - len(known))) / len(
            self._ids
        )
