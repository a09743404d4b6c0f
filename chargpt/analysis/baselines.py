"""What other programs make of the same text: gzip, bzip2 and xz, and the n-gram model of the text report."""

import bz2
import gzip
import lzma

import numpy as np

from chargpt.text.cache import EncodedText
from chargpt.text.facts import TRAIN_SAMPLE, VAL_SAMPLE, ngram_probabilities, repeated_lines, sample


def compressed_sizes(data: bytes) -> dict[str, int]:
    """The size of `data` in bytes when each program has compressed it, at its best setting."""
    best = 9 | lzma.PRESET_EXTREME
    packed = {"gzip -9": gzip.compress(data), "bzip2 -9": bz2.compress(data), "xz -9e": lzma.compress(data, preset=best)}
    return {name: len(content) for name, content in packed.items()}


def ngram_bits(corpus: EncodedText, ids: np.ndarray, *, unknown: float) -> tuple[int, float] | None:
    """The order of the n-gram model of `corpus`, and its bits for each of the first VAL_SAMPLE of `ids` (T,) of a text.

    An unknown character, -1, costs `unknown` bits, and the model does not see it. None for too short a text.
    """
    ids = ids[:VAL_SAMPLE]
    known = ids[ids >= 0]
    if len(known) < 5 or len(corpus.train) < 5:
        return None
    vocab_size = corpus.tokenizer.vocab_size
    probability = ngram_probabilities(sample(corpus.train, TRAIN_SAMPLE), known, vocab_size=vocab_size)
    bits = -float(np.log2(probability).mean())
    return len(known) - len(probability), (bits * len(known) + unknown * (len(ids) - len(known))) / len(ids)


def share_in_training(corpus: EncodedText, ids: np.ndarray) -> float:
    """The share of the first VAL_SAMPLE of `ids` (T,) that is lines of the training text."""
    known = ids[:VAL_SAMPLE][ids[:VAL_SAMPLE] >= 0]
    return repeated_lines(*(corpus.tokenizer.decode(part) for part in (sample(corpus.train, TRAIN_SAMPLE), known)))[1]
