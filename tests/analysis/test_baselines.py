"""The sizes are those of the programs themselves."""

import bz2
import gzip
import lzma

import numpy as np
import pytest

from chargpt.analysis.baselines import Baselines, NgramBits
from chargpt.config import DataConfig
from chargpt.terminal import UserError
from chargpt.text.corpus import load_corpus

TEXT = b"The sea is calm tonight. The tide is full.\n" * 50


def sizes_of(*pieces: bytes) -> dict:
    others = Baselines()
    for piece in pieces:
        others.add(piece)
    return others.sizes()


def test_sizes_are_those_of_the_whole_text():
    sizes = sizes_of(TEXT[:100], TEXT[100:])
    assert sizes["gzip -9"] == len(gzip.compress(TEXT, 9, mtime=0))
    assert sizes["bzip2 -9"] == len(bz2.compress(TEXT, 9))
    assert sizes["xz -9e"] == len(lzma.compress(TEXT, preset=9 | lzma.PRESET_EXTREME))


def test_the_ngram_loss_is_that_of_the_text_report(text, tmp_path):
    corpus = load_corpus([str(text)], DataConfig(), root=tmp_path, block_size=8)
    mark = NgramBits(lambda: corpus)
    mark.add(np.asarray(corpus.val[:100], np.int64))
    mark.add(np.asarray(corpus.val[100:], np.int64))
    order, bits = mark.bits(unknown=20.0)
    assert order == 3 and bits * np.log(2) == pytest.approx(corpus.facts.ngram_loss)
    mark.add(np.full(len(corpus.val), -1))
    assert mark.bits(unknown=20.0)[1] == pytest.approx((bits + 20) / 2)


def test_without_the_training_text_there_is_no_mark():
    def gone():
        raise UserError("gone")

    mark = NgramBits(gone)
    mark.add(np.zeros(100, np.int64))
    assert mark.bits(unknown=20.0) is None
