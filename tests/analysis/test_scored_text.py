"""Each character gets the bits that the model gives it, unknown ones their price; the lines and the table have all of them."""

import math

import numpy as np
import pytest
import torch

from chargpt.analysis import scored_text
from chargpt.analysis.baselines import ngram_bits
from chargpt.analysis.scored_text import UNKNOWN_BITS, Summary, Total, describe_unknown, lines_of, score_text
from chargpt.commands.score import table
from chargpt.config import DataConfig
from chargpt.model import GPT, GPTConfig
from chargpt.text.corpus import load_corpus
from chargpt.text.tokenizer import Tokenizer
from chargpt.training.evaluation import evaluate


def new_model(vocab_size: int) -> GPT:
    torch.manual_seed(0)
    return GPT(GPTConfig(n_layer=1, n_head=2, n_embd=16, block_size=8), vocab_size).eval()


def scored(tokenizer: Tokenizer, text: str, *, stride: int = 8) -> tuple[np.ndarray, Total]:
    return score_text(new_model(tokenizer.vocab_size), tokenizer, text, stride=stride)


def test_unknown_characters_have_their_price_and_the_model_does_not_see_them():
    tokenizer, text = Tokenizer("\nabc"), "éaéébc\nab中" + "abc" * 5
    bits, total = scored(tokenizer, text)
    unknown = np.array([c in "é中" for c in text])
    assert (bits[unknown] == UNKNOWN_BITS).all() and np.isnan(bits[1]) and np.isnan(bits).sum() == 1
    np.testing.assert_allclose(bits[~unknown], scored(tokenizer, "".join(c for c in text if c not in "é中"))[0], atol=1e-5)
    assert total.unknown == {"é": 3, "中": 1}
    assert total.bits == pytest.approx(np.nansum(bits)) and total.bytes == len(text.encode()) - 1
    assert "4 of" in describe_unknown(total, tokenizer) and "U+4E2D" in describe_unknown(total, tokenizer)


@pytest.mark.parametrize("text", ["", "a", "é", "éé\n", "aé"])
def test_texts_with_nothing_to_predict(text):
    bits, total = scored(Tokenizer("\nabc"), text)
    assert len(bits) == len(text) and total.ids == len(text) - any(c in "\nabc" for c in text)
    assert total.loss == pytest.approx(UNKNOWN_BITS * math.log(2) if total.ids else 0.0)


def test_bytes_are_scored_per_byte_and_shown_per_character():
    tokenizer = Tokenizer(None)
    text = ("é中\n\U0001f600b\n".encode() + b"\xff\xc3\n").decode("utf-8", "surrogateescape")
    bits, total = scored(tokenizer, text)
    lines = lines_of(text, bits)
    assert [line.text for line in lines] == ["é中\n", "\U0001f600b\n", "\ufffd\ufffd\n"]
    assert [len(line.bits) for line in lines] == [3, 3, 3]
    assert total.loss == pytest.approx(evaluate(new_model(256), tokenizer.ids_of(text)), abs=1e-6)
    assert (total.characters, total.bytes) == (8, len(tokenizer.ids_of(text)) - 1)
    assert sum(line.total for line in lines[1:]) < total.bits


def test_lines_are_whole_but_for_huge_ones(monkeypatch):
    text = "ab\n\nabc\nc"
    bits = np.arange(len(text), dtype=float)
    lines = lines_of(text, bits)
    assert [(line.number, line.text) for line in lines] == [(1, "ab\n"), (2, "\n"), (3, "abc\n"), (4, "c")]
    np.testing.assert_array_equal(np.concatenate([line.bits for line in lines]), bits)
    monkeypatch.setattr(scored_text, "LONGEST", 10)
    text = "a" * 25 + "\n" + "b" * 10 + "\n"
    assert [(line.number, len(line.text)) for line in lines_of(text, np.zeros(len(text)))] == [
        (1, 10), (1, 10), (1, 6), (2, 10), (2, 1),
    ]  # fmt: skip
    assert lines_of("", np.empty(0)) == []


def test_each_figure_of_the_table_is_a_total_divided_by_its_own_count():
    """Characters, bytes and ids differ; other programs also read the first character of each text, which is not predicted."""
    texts = [(name, Total(characters=99, bytes=199, ids=149, bits=398.0)) for name in "ab"]
    summary = Summary(facts={}, texts=texts, characters=200, bytes=400, sizes={"gzip -9": 300}, ngram=(3, 2.0))
    rows = [row.split() for row in table(summary)[1:]]
    loss = f"{398 / 149 * math.log(2):.4f}"
    assert rows[0] == ["a", "99", "199", "50", f"{398 / 99:.4f}", "2.0000", loss]
    assert rows[2] == ["all", "texts", "198", "398", "100", f"{398 / 99:.4f}", "2.0000", loss]
    assert rows[3] == ["gzip", "-9", "200", "400", "300", "12.0000", "6.0000"]
    per_character, per_byte = 2 * 298 / 198, 2 * 298 / 398
    assert rows[4] == ["order-3", "n-gram", f"{per_character:.4f}", f"{per_byte:.4f}", f"{2 * math.log(2):.4f}"]
    figures = summary.to_json()["total"]
    assert figures["bits_per_character"] == round(398 / 99, 6) and figures["bits_per_byte"] == 2.0
    assert figures["loss"] == round(398 / 149 * math.log(2), 6)


def test_the_ngram_loss_is_that_of_the_text_report(text, tmp_path):
    corpus = load_corpus([str(text)], DataConfig(), root=tmp_path, block_size=8)
    val = np.asarray(corpus.val, np.int64)
    order, bits = ngram_bits(corpus, val, unknown=20.0)
    assert order == 3 and bits * np.log(2) == pytest.approx(corpus.facts.ngram_loss)
    half_unknown = np.concatenate((val, np.full(len(val), -1)))
    assert ngram_bits(corpus, half_unknown, unknown=20.0)[1] == pytest.approx((bits + 20) / 2)
    assert ngram_bits(corpus, val[:4], unknown=20.0) is None
