"""The parts of the loss add up to the loss that training reports."""

import numpy as np
import pytest
import torch
from helpers import SHAPE, TOKENIZER

from chargpt.analysis.losses import Confusion, LastDoubling, Predictions, confused_pairs, last_doubling, loss_breakdown, predict
from chargpt.errors import UserError
from chargpt.model import GPT
from chargpt.text.item_stream import ItemMarks
from chargpt.text.tokenizer import Tokenizer
from chargpt.training.evaluation import evaluate


@pytest.mark.parametrize("length", [2, 17, 18, 100])
def test_the_loss_is_that_of_training_and_the_sum_of_its_parts(length):
    torch.manual_seed(0)
    model = GPT(SHAPE, TOKENIZER.vocab_size).eval()
    ids = torch.randint(0, TOKENIZER.vocab_size, (length,)).numpy()
    predictions = predict(model, ids)
    report = loss_breakdown(predictions, TOKENIZER, block_size=SHAPE.block_size, most=5)
    assert report.loss == pytest.approx(evaluate(model, ids), abs=1e-5)
    for rows in (report.classes, report.positions):
        assert sum(row.characters for row in rows) == length - 1
        assert sum(row.characters * row.loss for row in rows) == pytest.approx(report.loss * (length - 1))
    assert report.positions[-1].last <= SHAPE.block_size
    if length == 100:
        logits = model(torch.from_numpy(ids[None, 16:32]))[0, 4]  # of the second window, after 5 characters
        assert predictions.losses[20] == pytest.approx(-logits.log_softmax(-1)[ids[21]].item(), abs=1e-5)
        assert predictions.best[20] == logits.argmax() and predictions.positions[20] == 5


@pytest.mark.parametrize("has_labels", [False, True])
def test_the_loss_of_items_is_that_of_training_and_labels_do_not_count(has_labels):
    torch.manual_seed(0)
    tokenizer = Tokenizer("\t\n abcdefgh")
    model = GPT(SHAPE, tokenizer.vocab_size).eval()
    items = ["ab\tfeed a cab", "c\tbad egg" * 3, "ab\t", "c\thh", "ab\tnot whole"]  # the second is longer than the context
    ids = tokenizer.encode_known("\n".join(items))[0]
    marks = ItemMarks.of(tokenizer, has_labels=has_labels)
    predictions = predict(model, ids, marks)
    report = loss_breakdown(predictions, tokenizer, block_size=SHAPE.block_size, most=5)
    assert report.loss == pytest.approx(evaluate(model, ids, marks=marks), abs=1e-5)
    end = len(ids) - len(tokenizer.encode_known(items[-1])[0])  # of the last item that is complete
    assert predictions.places.tolist() == np.flatnonzero(marks.counted(ids)[:end]).tolist()
    for rows in (report.classes, report.positions):
        assert sum(row.characters for row in rows) == len(predictions.places)
    assert report.last_doubling.gain is None and predictions.positions.max() == SHAPE.block_size
    alone = predict(model, ids[:5], marks)  # the beginning of one item
    assert len(alone.losses) == 5 - 3 * has_labels and alone.losses.mean() == pytest.approx(
        evaluate(model, ids[:5], marks=marks), abs=1e-5
    )
    if has_labels:
        with pytest.raises(UserError, match="begins with labels, which have no loss; .*--chars"):
            predict(model, tokenizer.encode("ab"), marks)


def test_a_share_of_the_loss_is_that_of_its_characters():
    ids = TOKENIZER.encode("ab\nab\n")
    losses = np.array([1.0, 2.0, 3.0, 1.0, 5.0])  # of b, newline, a, b, newline
    predictions = Predictions(ids=ids, places=np.arange(1, 6), losses=losses, best=ids[1:], positions=np.ones(5, int))
    rows = loss_breakdown(predictions, TOKENIZER, block_size=8, most=5).classes
    assert [(row.name, row.characters, row.loss) for row in rows] == [
        ("newline", 2, 3.5), ("first of a word", 1, 3.0), ("rest of a word", 2, 1.0)
    ]  # fmt: skip
    assert [row.share_of_loss for row in rows] == pytest.approx([7 / 12, 3 / 12, 2 / 12])
    assert [row.share for row in rows] == pytest.approx([0.4, 0.2, 0.4]) and all(row.right == 1 for row in rows)


def test_what_the_last_doubling_gained_is_measured_within_windows():
    losses = np.tile([9.0, 9, 3, 3, 1, 1, 1, 1], 5) + np.repeat(np.arange(5.0), 8)  # windows of 8, each harder than the last
    predictions = Predictions(
        ids=np.zeros(41, int),
        places=np.arange(1, 41),
        losses=losses,
        best=np.zeros(40, int),
        positions=np.tile(np.arange(1, 9), 5),
    )
    assert last_doubling(predictions, 8) == LastDoubling(gain=2.0, error=0.0)
    assert last_doubling(predictions, 64).gain is None


def test_confused_pairs_are_counted():
    ids, best = np.array([0, 2, 2, 3, 2]), np.array([3, 3, 3, 4])
    predictions = Predictions(ids=ids, places=np.arange(1, 5), losses=np.ones(4), best=best, positions=np.ones(4, int))
    rows = confused_pairs(predictions, TOKENIZER, 1)
    assert rows == [Confusion(character="a", prediction="b", times=2, share_of_mistakes=2 / 3)]
