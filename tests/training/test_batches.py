"""Batches: a pure function of (seed, step, chunk), each window once an epoch, all inside the text."""

import hashlib

import numpy as np
import pytest
import torch
from helpers import batch_of
from torch import Tensor

from chargpt.config import TrainConfig
from chargpt.training.batches import Batches, on_device, permuted

CPU = torch.device("cpu")
IDS = np.arange(1000, dtype=np.uint16)  # every id is its own position


def make_batches(ids: np.ndarray = IDS, block_size: int = 16, *, resident: Tensor | None = None, **settings: int) -> Batches:
    train = TrainConfig(**{"batch_size": 4, "seed": 1, **settings})
    return Batches(ids, block_size, train=train, resident=resident)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64, 65, 1000, 4097])
def test_the_permutation_is_a_bijection_and_the_key_chooses_it(size):
    keys = np.random.default_rng(size).integers(0, 2**64, (2, 7, 1), np.uint64)
    one, other = (permuted(np.arange(size, dtype=np.uint64), size, key) for key in keys)
    assert sorted(one.tolist()) == sorted(other.tolist()) == list(range(size))
    assert size < 64 or (one != other).mean() > 0.9


def test_targets_are_the_inputs_one_later_and_inside_the_text():
    for length in (17, 18, 31, 32, 33, 50, 1000):
        chosen = make_batches(IDS[:length])
        for step in range(30):
            inputs, targets = batch_of(chosen, step)
            assert inputs.dtype == targets.dtype == torch.int64 and inputs.shape == targets.shape == (4, 16)
            assert inputs.is_contiguous() and targets.is_contiguous()
            assert torch.equal(inputs + 1, targets) and targets.max() < length and torch.equal(inputs[:, 1:], targets[:, :-1])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_a_text_that_lies_on_the_device_gives_the_same_batches(dtype, monkeypatch):
    monkeypatch.setattr("chargpt.training.batches.PART", 300)
    largest = min(2**31 - 1, np.iinfo(dtype).max)  # the larger types hold larger ids, which float32 could not
    ids = (largest - np.arange(1000) * 65 % largest).astype(dtype)
    read_only = ids.copy()
    read_only.flags.writeable = False  # as a text in a file is
    on_device(read_only, CPU)
    for block_size in (16, 1):  # with 1, every id is an input or a target
        given = ids.copy()
        one, other = (make_batches(ids, block_size), make_batches(given, block_size, resident=on_device(given, CPU)))
        given[:] = 0  # the copy is what counts
        for step in range(250):
            for left, right in zip(batch_of(one, step), batch_of(other, step)):
                assert torch.equal(left, right) and left.dtype == right.dtype and right.is_contiguous()


def test_an_epoch_has_every_window_once_and_the_next_one_lies_otherwise():
    chosen = make_batches(batch_size=1)
    epochs = [[int(chosen.starts(e * chosen.per_epoch + i)[0]) for i in range(chosen.per_epoch)] for e in range(3)]
    assert chosen.per_epoch == (1000 - 16) // 16
    for starts in epochs:
        assert (np.diff(sorted(starts)) == 16).all() and len(set(starts)) == chosen.per_epoch
    assert len({min(starts) for starts in epochs}) > 1 and epochs[0] != epochs[1]


def test_a_batch_depends_on_nothing_but_its_step_and_the_seed():
    whole, one = make_batches(), make_batches()
    in_order = [whole.starts(step) for step in range(100)]
    for step in (99, 0, 7, 7):
        assert np.array_equal(one.starts(step), in_order[step]) and np.array_equal(make_batches().starts(step), in_order[step])
    assert not np.array_equal(make_batches(seed=2).starts(0), in_order[0])


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_micro_batches_share_out_the_samples_of_a_step(parts):
    whole = make_batches(batch_size=48).starts(5)
    chosen = make_batches(batch_size=48 // parts, accumulate=parts)
    assert np.array_equal(np.concatenate([chosen.starts(5, part) for part in range(parts)]), whole)


def test_a_huge_text_takes_no_more_memory_than_a_small_one():
    endless = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (10**12,), (0,))
    chosen = make_batches(endless)
    assert chosen.starts(10**6).max() < 10**12 - 16 and batch_of(chosen, 10**6)[0].shape == (4, 16)


@pytest.mark.parametrize(
    "length, block_size, batch_size, accumulate, seed, digest",
    [
        (1000, 8, 3, 1, 0, "9e9197f0727ac8e8"),
        (70_000, 64, 700, 2, 7, "63be30dac10a5e38"),
        (70_000, 16, 2500, 1, 2**63 - 1, "c6e08eb0d39e91d5"),  # a batch of several blocks, and many epochs
        (5_000_000, 256, 12, 1, 1337, "087af2cef127b4f2"),
        (9, 8, 2, 1, 1, "5b6fb58e61fa4759"),  # one window in an epoch
        (24, 8, 3, 1, 5, "0dea46a551e97a13"),  # two windows
        (40, 8, 3, 1, 6, "ab727f1040a67548"),  # four, a power of two
        (3216, 16, 5, 2, 8, "b37a37ce86d2a9ba"),  # 200, of an even number of bits
    ],
)
def test_the_order_of_windows_never_changes(length, block_size, batch_size, accumulate, seed, digest):
    """A run that continues with a later version of the program reads the same windows: this order is part of the format."""
    ids = np.zeros(length, np.uint8)
    batches = make_batches(ids, block_size, batch_size=batch_size, accumulate=accumulate, seed=seed)
    starts = [batches.starts(step, micro) for step in (0, 1, 2, 50, 1000) for micro in range(accumulate)]
    assert hashlib.sha256(np.concatenate(starts).astype("<i8").tobytes()).hexdigest()[:16] == digest
