"""Batches and evaluation of items: windows begin at items, each is seen equally often, and labels and remains do not count."""

import copy
import itertools
import random
from collections import Counter

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import batch_of

from chargpt.config import Config, OptimConfig, RuntimeConfig, TrainConfig
from chargpt.text.item_stream import ItemMarks
from chargpt.text.windows import IGNORED, windows_of_items
from chargpt.training.evaluation import evaluate
from chargpt.training.item_batches import ItemBatches
from chargpt.training.runtime import choose_runtime
from chargpt.training.trainer import Trainer
from model import GPT, GPTConfig

END, TAB = 0, 1
SHAPE = GPTConfig(n_layer=1, n_head=2, n_embd=16, block_size=8)


def list_of(count: int, *, has_labels: bool, longest: int = 5, seed: int = 0) -> tuple[np.ndarray, list[list[int]]]:
    """Random ids of items, and each item with its end, without its label."""
    draw, ids, items = random.Random(seed), list[int](), list[list[int]]()
    for _ in range(count):
        item = [*draw.choices(range(2, 9), k=draw.randint(1, longest)), END]
        ids += [*draw.choices(range(2, 9), k=draw.randint(1, 2)), TAB] if has_labels else []
        ids += item
        items.append(item)
    return np.array(ids, np.uint8), items


def batches_of(ids: np.ndarray, *, has_labels: bool, **changes) -> ItemBatches:
    train = TrainConfig(**{"batch_size": 4, "seed": 3, **changes})
    return ItemBatches(ids, 8, train=train, marks=ItemMarks(END, TAB if has_labels else None))


@pytest.mark.parametrize("has_labels", [False, True])
def test_a_window_holds_whole_items_and_predicts_nothing_else(has_labels):
    ids, items = list_of(200, has_labels=has_labels, longest=4)
    batches, seen = batches_of(ids, has_labels=has_labels), Counter[tuple[int, ...]]()
    for step in range(50):
        inputs, targets = (part.numpy() for part in batch_of(batches, step))
        assert inputs.shape == targets.shape == (4, 8)
        for row, wanted in zip(inputs, targets):
            predicted = wanted != IGNORED
            assert row[0] == END and wanted[predicted][-1] == END
            assert np.array_equal(row[1:][predicted[:-1]], wanted[:-1][predicted[:-1]])
            for item in " ".join(map(str, wanted[predicted])).removesuffix(f" {END}").split(f" {END} "):
                seen[tuple(map(int, item.split()))] += 1
    assert {*seen} <= {tuple(item[:-1]) for item in items}


def test_an_epoch_reads_each_item_about_once_in_an_order_of_its_own():
    ids, items = list_of(400, has_labels=False, longest=3)
    batches = batches_of(ids, has_labels=False, batch_size=1)
    epochs = []
    for epoch in range(3):
        rows = [batch_of(batches, epoch * batches.per_epoch + i)[1] for i in range(batches.per_epoch)]
        targets = torch.cat(rows).flatten()
        epochs.append(targets[targets != IGNORED].tolist())
        assert abs(len(epochs[-1]) - len(ids)) < 0.05 * len(ids)
        assert abs(epochs[-1].count(END) - len(items)) < 0.05 * len(items)
    assert epochs[0][:50] != epochs[1][:50] != epochs[2][:50]


@pytest.mark.parametrize("count", [1, 2, 7, 60])
def test_batches_are_a_function_of_seed_step_and_rows(count):
    ids, _ = list_of(count, has_labels=True, longest=20)
    first, again = batches_of(ids, has_labels=True), batches_of(ids, has_labels=True)
    expected = [batch_of(first, step) for step in range(8)]
    for step in (5, 0, 7, 3):
        halves = [batch_of(again, step, 0, slice(start, start + 2)) for start in (0, 2)]
        for part in (0, 1):
            assert torch.equal(torch.cat([half[part] for half in halves]), expected[step][part])
    assert all((targets != IGNORED).any(dim=1).all() for _, targets in expected)
    other = batches_of(ids, has_labels=True, seed=4)
    assert count < 7 or not torch.equal(batch_of(other, 0)[0], expected[0][0])


def test_a_long_item_goes_on_in_the_next_window():
    ids = np.array([*range(2, 22), END], np.uint8)
    batches = batches_of(ids, has_labels=False, batch_size=3)
    inputs, targets = batch_of(batches, 0)
    assert inputs[:, 0].tolist() == [END, 9, 17] and targets[targets != IGNORED].tolist() == ids.tolist()


@pytest.mark.parametrize("longest", [1, 3, 7])
def test_a_window_ends_where_the_next_item_does_not_fit(longest):
    ids, _ = list_of(150, has_labels=False, longest=longest)
    batches = batches_of(ids, has_labels=False, batch_size=1)
    rows = [batch_of(batches, step)[1].flatten() for step in range(batches.per_epoch)]
    for row, following in itertools.pairwise(rows):
        size, first = int((row != IGNORED).sum()), following.tolist().index(END) + 1
        assert size <= 8 < size + first


def test_labels_count_where_that_is_asked_for():
    ids, _ = list_of(50, has_labels=True)
    without, with_labels = (batch_of(batches_of(ids, has_labels=True, label_loss=counts), 0)[1] for counts in (False, True))
    assert (without != IGNORED).sum() < (with_labels != IGNORED).sum() and TAB in with_labels and TAB not in without


@pytest.mark.parametrize("has_labels", [False, True])
def test_the_loss_is_the_mean_over_all_items_each_alone(has_labels):
    ids, _ = list_of(90, has_labels=has_labels, longest=20)
    torch.manual_seed(1)
    model, marks, total, count = GPT(SHAPE, 9), ItemMarks(END, TAB if has_labels else None), 0.0, 0
    starts, stops = marks.bounds(ids)
    counted = marks.counted(ids)
    for start, stop in zip(starts, stops):
        line = torch.tensor([END, *ids[start : stop + 1]])
        for at in range(0, len(line) - 1, 8):
            logits = model(line[at : at + 8][: len(line) - 1 - at][None])[0]
            losses = F.cross_entropy(logits, line[at + 1 : at + 9], reduction="none")
            mask = torch.from_numpy(counted[start + at : start + at + len(losses)])
            total, count = total + losses[mask].sum().item(), count + int(mask.sum())
    assert evaluate(model, ids, marks=marks) == pytest.approx(total / count, rel=1e-5)
    cut = np.concatenate((ids, np.uint8([3, 4])))  # the last item is not complete
    assert evaluate(model, cut, marks=marks) == evaluate(model, ids, marks=marks)
    assert sum((targets != IGNORED).sum() for _, targets in windows_of_items(ids, marks, size=8, vocab_size=9)) == count


def test_the_beginning_of_an_item_is_evaluated_where_no_whole_one_is():
    ids, _ = list_of(1, has_labels=True, longest=1)
    long = np.concatenate((ids[:-1], np.tile(np.uint8([2, 3]), 50)))
    model, marks = GPT(SHAPE, 9), ItemMarks(END, TAB)
    whole = evaluate(model, np.append(long, np.uint8(END)), marks=marks)
    assert evaluate(model, long, marks=marks) == pytest.approx(whole, rel=0.1)
    assert evaluate(model, ids[:1], marks=marks) == 0.0  # a label alone: nothing is predicted


@pytest.mark.parametrize("taught", [False, True])
def test_a_step_learns_from_what_counts_alone(taught):
    """Against autograd in float64: the gradient is that of the mean loss over the targets that count."""
    ids, _ = list_of(60, has_labels=True)
    config = Config(
        model=SHAPE,
        train=TrainConfig(max_steps=3, batch_size=4),
        optim=OptimConfig(grad_clip=0.0, warmup_steps=0),
        runtime=RuntimeConfig(device="cpu", precision="float32", threads=1),
    )
    marks = ItemMarks(END, TAB)
    torch.manual_seed(0)
    model, teacher = GPT(SHAPE, 9), GPT(SHAPE, 9)
    teachers = [copy.deepcopy(teacher)] if taught else []
    trainer = Trainer(copy.deepcopy(model), ids, config, runtime=choose_runtime(config), marks=marks, teachers=teachers)
    found = trainer.step()
    inputs, targets = batch_of(batches_of(ids, has_labels=True, seed=config.train.seed), 0)
    model = model.double()
    logits, counts = model(inputs).log_softmax(dim=-1), targets != IGNORED
    one_hot = F.one_hot(targets.clamp(min=0), 9).double()
    if taught:
        one_hot = 0.2 * one_hot + 0.8 * teacher.double()(inputs).softmax(dim=-1).detach()
    loss = -(one_hot * logits).sum(dim=-1)[counts].mean()
    gradient = torch.autograd.grad(loss, list(model.parameters()))
    norm = sum((g**2).sum() for g in gradient).sqrt().item()
    assert (found.loss, found.grad_norm) == pytest.approx((loss.item(), norm), rel=1e-4)
