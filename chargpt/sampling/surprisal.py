"""How surprised a model is by a text: the loss of each character."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from chargpt.device import one_thread
from chargpt.errors import NOT_FINITE, Damaged
from chargpt.kernels.attention import SOURCES
from chargpt.kernels.compiler import Unavailable
from chargpt.kernels.step import KernelModel, StepKernel, is_faster, supports
from chargpt.model import GPT
from chargpt.text.item_stream import ItemMarks
from chargpt.text.windows import ids_at_once

# For this many ids or more, it is worth loading a kernel, which packs all weights first.
WORTH_A_KERNEL = 10_000
SMALL_WORK = 2e9  # operations, about 0.03 s of one core; with less, several threads wait for one another longer than they gain


def fastest_logits(model: GPT, ids: int) -> Callable[[Tensor], Tensor]:
    """What computes logits (B, T, V), float32, of idx (B, T), for about this many `ids`: the kernel of training, or torch."""
    weight = model.token_embedding.weight
    is_for_c = ids >= WORTH_A_KERNEL and weight.is_cpu and weight.dtype in SOURCES and is_faster(model.config)
    if is_for_c and supports(model.config):
        with contextlib.suppress(Unavailable):
            return KernelModel.of(StepKernel(weight.dtype), model).logits
    return lambda idx: model(idx).float()


def threads_for(model: GPT, ids: int) -> AbstractContextManager[None]:
    """Inside, torch computes with one thread if reading `ids` ids is little work; then the number is what it was."""
    return one_thread() if 2 * model.parameter_count() * ids < SMALL_WORK else contextlib.nullcontext()


def losses_of(model: GPT, ids: np.ndarray, *, stride: int) -> Iterator[np.ndarray]:
    """The loss of each of `ids` but the first: its negative log-likelihood given the ids before it, in nats, float32. They come
    in consecutive pieces, one for each window.

    A window of block_size ids begins every `stride` ids, and predicts what no window before it has predicted: the first one all
    of its ids, each other one the last `stride`. With a stride of block_size, these are the windows of the validation loss. Use
    a model in evaluation mode.
    """
    for _, _, losses, _ in _predicted(model, [ids], stride=stride):
        yield losses


def total_losses(model: GPT, texts: Sequence[np.ndarray], *, stride: int, given: Sequence[int] = ()) -> np.ndarray:
    """The sum of the losses of each of the `texts` (ids), float64, (len(texts),), up to the rounding of float32. In each text,
    this many ids after the first one are `given`, and not predicted (default: none)."""
    totals = np.zeros(len(texts))
    for text, _, losses, _ in _predicted(model, texts, stride=stride, given=given):
        totals[text] += losses.astype(np.float64).sum()
    return totals


def predictions_of(
    model: GPT, ids: np.ndarray, marks: ItemMarks | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """How `model` predicts `ids` in windows of block_size, as in the validation.

    Returns arrays with a value for each id that is predicted, in the order of the text: its index in `ids`, its loss in nats,
    the id that the model expected most, and how many ids of the context the model read. With `marks`, these are the items in
    `ids` and their ends, each item alone and given its label; otherwise all of `ids` but the first.
    """
    if marks is None:
        starts, given, texts = np.ones(1, np.int64), [0], [ids]
    else:
        starts, stops = marks.bounds(ids)
        counted = marks.counted(ids)
        given = [int((~counted[start : stop + 1]).sum()) for start, stop in zip(starts, stops)]
        texts = [np.concatenate(([marks.end], ids[start : stop + 1])) for start, stop in zip(starts, stops)]
    size = model.config.block_size
    losses, best, positions = (np.zeros(len(ids), dtype) for dtype in (np.float64, np.int64, np.int64))
    for text, known, found, likeliest in _predicted(model, texts, stride=size, given=given):
        place = slice(starts[text] + known, starts[text] + known + len(found))
        losses[place], best[place], positions[place] = found, likeliest, (known + np.arange(len(found))) % size + 1
    places = np.flatnonzero(positions)
    return places, losses[places], best[places], positions[places]


@torch.inference_mode()
def _predicted(
    model: GPT, texts: Sequence[np.ndarray], *, stride: int, given: Sequence[int] = ()
) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
    """Each window of the `texts`, the longest first: the number of its text, how many ids after the first one of the text are
    known before it, and of those that it predicts the losses and the most likely ids.

    The windows of all texts are computed together, those of similar length in one batch. Each is filled up at its end, which a
    causal model does not see before.
    """
    size, most = model.config.block_size, ids_at_once(model.vocab_size)
    windows = [  # (text, start, end, known): the ids from start up to end are read, and those after `known` of them predicted
        (i, start, min(start + size, len(ids) - 1), known)
        for i, (ids, first) in enumerate(zip(texts, given or itertools.repeat(0)))
        for start in range(0, len(ids) - 1, stride)
        if (known := max(first, start + size - stride if start else 0)) < len(ids) - 1
    ]
    windows.sort(key=lambda window: window[1] - window[2])
    done, logits_of = 0, fastest_logits(model, sum(map(len, texts)))
    while done < len(windows):
        longest = windows[done][2] - windows[done][1]
        batch = windows[done : done + max(1, most // longest)]
        done += len(batch)
        padded = np.zeros((len(batch), longest + 1), np.int64)
        for row, (i, start, end, _) in zip(padded, batch):
            row[: end - start + 1] = texts[i][start : end + 1]
        with threads_for(model, padded.size):
            ids = torch.from_numpy(padded).to(model.token_embedding.weight.device)
            logits = logits_of(ids[:, :-1])
            losses = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(len(batch), -1)
            numbers, best = losses.cpu().numpy(), logits.argmax(dim=-1).cpu().numpy()
        if not np.isfinite(numbers).all():
            raise Damaged(NOT_FINITE)
        for (i, start, end, known), found, likeliest in zip(batch, numbers, best):
            yield i, known, found[known - start : end - start], likeliest[known - start : end - start]
