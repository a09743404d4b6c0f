"""The n-gram loss is that of the text report, and an unknown character has its price."""

import numpy as np
import pytest

from chargpt.analysis.baselines import ngram_bits
from chargpt.config import DataConfig
from chargpt.text.corpus import load_corpus


def test_the_ngram_loss_is_that_of_the_text_report(text, tmp_path):
    corpus = load_corpus([str(text)], DataConfig(), root=tmp_path, block_size=8)
    val = np.asarray(corpus.val, np.int64)
    order, bits = ngram_bits(corpus, val, unknown=20.0)
    assert order == 3 and bits * np.log(2) == pytest.approx(corpus.facts.ngram_loss)
    half_unknown = np.concatenate((val, np.full(len(val), -1)))
    assert ngram_bits(corpus, half_unknown, unknown=20.0)[1] == pytest.approx((bits + 20) / 2)
    assert ngram_bits(corpus, val[:4], unknown=20.0) is None
