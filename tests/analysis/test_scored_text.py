"""Each character gets the bits that the model gives it, unknown ones their price, and lines hold all of them in order."""

import math

import numpy as np
import pytest
import torch

from chargpt.analysis import scored_text
from chargpt.analysis.scored_text import UNKNOWN_BITS, Total, describe_unknown, lines_of, score_pieces
from chargpt.model import GPT, GPTConfig
from chargpt.text.tokenizer import Tokenizer
from chargpt.training.evaluation import evaluate


def new_model(vocab_size: int) -> GPT:
    torch.manual_seed(0)
    return GPT(GPTConfig(n_layer=1, n_head=2, n_embd=16, block_size=8), vocab_size).eval()


def scored(tokenizer: Tokenizer, pieces: list, *, stride: int = 8) -> tuple[list, Total]:
    total = Total()
    model = new_model(tokenizer.vocab_size)
    return list(score_pieces(model, tokenizer, pieces, stride=stride, total=total)), total


def test_the_loss_is_the_validation_loss():
    tokenizer, text = Tokenizer("\nabc"), "abc\nab\nc" * 30
    _, total = scored(tokenizer, [text[:50], text[50:53], text[53:]])
    assert total.loss == pytest.approx(evaluate(new_model(4), tokenizer.encode(text)), abs=1e-6)
    assert total.characters == total.bytes == total.ids == len(text) - 1
    assert total.bits_per_character == pytest.approx(total.loss / math.log(2))


def test_unknown_characters_have_their_price_and_the_model_does_not_see_them():
    tokenizer, text = Tokenizer("\nabc"), "éaéébc\nab中" + "abc" * 5
    result, total = scored(tokenizer, [text[:3], text[3:9], text[9:]])
    bits = np.concatenate([part for _, part in result])
    unknown = np.array([c in "é中" for c in text])
    assert "".join(piece for piece, _ in result) == text and len(bits) == len(text)
    assert (bits[unknown] == UNKNOWN_BITS).all() and np.isnan(bits[1]) and np.isnan(bits).sum() == 1
    clean = "".join(c for c in text if c not in "é中")
    np.testing.assert_allclose(bits[~unknown], scored(tokenizer, [clean])[0][0][1], atol=1e-5)
    assert total.unknown == {"é": 3, "中": 1}
    assert total.bits == pytest.approx(np.nansum(bits)) and total.bytes == len(text.encode()) - 1
    assert "4 of" in describe_unknown(total, tokenizer) and "U+4E2D" in describe_unknown(total, tokenizer)


@pytest.mark.parametrize("text", ["", "a", "é", "éé\n", "aé"])
def test_texts_with_nothing_to_predict(text):
    result, total = scored(Tokenizer("\nabc"), [text] if text else [])
    assert "".join(piece for piece, _ in result) == text
    assert total.ids == len(text) - any(c in "\nabc" for c in text)
    assert total.loss == pytest.approx(UNKNOWN_BITS * math.log(2) if total.ids else 0.0)


def test_bytes_are_scored_per_byte_and_shown_per_character():
    tokenizer, text = Tokenizer(None), "é中\n\U0001f600b\n".encode() + b"\xff\xc3\n"
    result, total = scored(tokenizer, [text[:1], text[1:]])
    lines = list(lines_of(result))
    assert [line.text for line in lines] == ["é中\n", "\U0001f600b\n", "\ufffd\ufffd\n"]
    assert [len(line.bits) for line in lines] == [3, 3, 3]
    assert total.loss == pytest.approx(
        evaluate(new_model(256), tokenizer.ids_of(text.decode("utf-8", "surrogateescape"))), abs=1e-6
    )
    assert sum(line.total for line in lines[1:]) < total.bits


@pytest.mark.parametrize("cuts", [[], [1], [3, 4], [2, 9, 10]])
def test_lines_do_not_depend_on_the_pieces(cuts):
    text = "ab\n\nabc\nc"
    bits = np.arange(len(text), dtype=float)
    spans = list(zip([0, *cuts], [*cuts, len(text)]))
    lines = list(lines_of((text[a:b], bits[a:b]) for a, b in spans))
    assert [(line.number, line.text) for line in lines] == [(1, "ab\n"), (2, "\n"), (3, "abc\n"), (4, "c")]
    np.testing.assert_array_equal(np.concatenate([line.bits for line in lines]), bits)


def test_a_huge_line_comes_in_parts(monkeypatch):
    monkeypatch.setattr(scored_text, "LONGEST", 10)
    text = "a" * 25 + "\n" + "b" * 10 + "\n"
    lines = list(lines_of([(text, np.zeros(len(text)))]))
    assert [(line.number, len(line.text)) for line in lines] == [(1, 10), (1, 10), (1, 6), (2, 10), (2, 1)]
    raw = ("a" * 9 + "中" * 3).encode()
    assert [line.text for line in lines_of([(raw, np.zeros(len(raw)))])] == ["a" * 9, "中中中"]


@pytest.mark.parametrize("longest", [4, 5, 6, 7, 11])
def test_a_long_line_of_bytes_is_never_cut_inside_a_character(longest, monkeypatch):
    monkeypatch.setattr(scored_text, "LONGEST", longest)
    text = "aé中\U0001f600" * 9 + "\n" + "\U0001f600中éa" * 7
    for start in range(4):
        raw = (text[start:]).encode()
        for cut in range(0, 12):
            lines = list(lines_of([(raw[:cut], np.zeros(cut)), (raw[cut:], np.zeros(len(raw) - cut))]))
            assert "".join(line.text for line in lines) == text[start:]
            assert sum(len(line.bits) for line in lines) == len(text[start:])
