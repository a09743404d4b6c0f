"""How surprised a model is by a text: the loss of each character."""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from chargpt.device import one_thread
from chargpt.kernels.attention import SOURCES
from chargpt.kernels.compiler import Unavailable
from chargpt.kernels.step import KernelModel, is_faster, step_kernel
from chargpt.model import GPT
from chargpt.text.items import ItemMarks
from chargpt.text.windows import ids_at_once, windows_of

# For this many ids or more, it is worth loading a kernel, which packs all weights first.
WORTH_A_KERNEL = 10_000
SMALL_WORK = 2e9  # operations, about 0.03 s of one core; with less, several threads wait for one another longer than they gain


def fastest_logits(model: GPT, ids: int) -> Callable[[Tensor], Tensor]:
    """What computes logits (B, T, V), float32, of idx (B, T), for about this many `ids`: the kernel of training, or torch."""
    weight = model.token_embedding.weight
    if ids >= WORTH_A_KERNEL and weight.is_cpu and weight.dtype in SOURCES and is_faster(model.config):
        with contextlib.suppress(Unavailable):
            return KernelModel.of(step_kernel(weight.dtype), model).logits
    return lambda idx: model(idx).float()


def threads_for(model: GPT, ids: int) -> AbstractContextManager[None]:
    """Inside, torch computes with one thread if reading `ids` ids is little work; then the number is what it was."""
    return one_thread() if 2 * model.parameter_count() * ids < SMALL_WORK else contextlib.nullcontext()


@torch.inference_mode()
def predictions_of(model: GPT, pieces: Iterable[np.ndarray], *, stride: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The loss of each id of a text but the first: its negative log-likelihood given the ids before it, in nats, float32; and
    for each of them the id that the model expected most, int64.

    `pieces` are the ids of the text in consecutive pieces. The values come in consecutive pieces too, one for each batch of
    `windows_of`. Use a model in evaluation mode.
    """
    device, logits_of = model.token_embedding.weight.device, None
    for windows in windows_of(pieces, size=model.config.block_size, stride=stride, vocab_size=model.vocab_size):
        inputs, targets = (torch.from_numpy(ids).to(device) for ids in (windows.inputs, windows.targets))
        logits_of = logits_of or fastest_logits(model, inputs.numel())
        logits = logits_of(inputs)
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
        yield _new(losses, windows.known, stride), _new(logits.argmax(dim=-1), windows.known, stride)


def _new(values: Tensor, known: int, stride: int) -> np.ndarray:
    """Those of the values (B, T) that are not known yet, in the order of the text. See `windows_of`."""
    return torch.cat((values[0, known:], values[1:, -stride:].flatten())).cpu().numpy()


def total_losses(model: GPT, texts: Sequence[np.ndarray], *, stride: int, given: Sequence[int] = ()) -> np.ndarray:
    """The sum of the losses of each of the `texts` (ids), float64, (len(texts),), up to the rounding of float32.

    In each text, this many ids after the first one are `given`, and not predicted (default: none).
    """
    totals = np.zeros(len(texts))
    for text, _, _, losses, _ in _predicted_texts(model, texts, stride=stride, given=given):
        totals[text] += losses.astype(np.float64).sum()
    return totals


def predictions_of_items(
    model: GPT, ids: np.ndarray, marks: ItemMarks
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """How `model` predicts the items in `ids` and their ends, each item alone and given its label, as in the validation.

    Returns arrays with a value for each id that is predicted, in the order of the text: its index in `ids`, its loss in nats,
    the id that the model expected most, and how many ids of the context the model read. An item at the end that is not
    complete is left out, unless it is the only one.
    """
    starts, stops = marks.bounds(ids)
    if not len(stops):
        starts, stops = np.zeros(1, np.int64), np.array([len(ids) - 1])
    counted = marks.counted(ids)
    given = [int((~counted[start : stop + 1]).sum()) for start, stop in zip(starts, stops)]
    texts = [np.concatenate(([marks.end], ids[start : stop + 1])) for start, stop in zip(starts, stops)]
    found = [(np.zeros(0, np.int64),) * 4]
    size = model.config.block_size
    for text, start, known, losses, best in _predicted_texts(model, texts, stride=size, given=given):
        places = starts[text] + np.arange(known, known + len(losses))
        found.append((places, losses, best, places - starts[text] - start + 1))
    places, losses, best, positions = (np.concatenate(values) for values in zip(*found))
    order = places.argsort()
    return places[order], losses[order], best[order], positions[order]


@torch.inference_mode()
def _predicted_texts(
    model: GPT, texts: Sequence[np.ndarray], *, stride: int, given: Sequence[int]
) -> Iterator[tuple[int, int, int, np.ndarray, np.ndarray]]:
    """Each window of the `texts`: the number of its text, where the window starts, how many ids after the first one of the text
    are known before it, and of those that it predicts the losses and the most likely ids.

    Windows of all texts are computed together, those of similar length in one batch. Each is filled up at its end, which a
    causal model does not see before.
    """
    size = model.config.block_size
    windows = [
        (i, *bounds)
        for i, (ids, first) in enumerate(zip(texts, given or itertools.repeat(0)))
        for bounds in _bounds(len(ids), size, stride, first)
    ]
    windows.sort(key=lambda window: window[2] - window[1])
    most, logits_of = ids_at_once(model.vocab_size), fastest_logits(model, sum(map(len, texts)))
    while windows:
        longest = windows[-1][2] - windows[-1][1]
        batch = windows[-max(1, most // longest) :]
        del windows[-len(batch) :]
        padded = np.zeros((len(batch), longest + 1), np.int64)
        for row, (i, start, end, _) in enumerate(batch):
            padded[row, : end - start + 1] = texts[i][start : end + 1]
        with threads_for(model, padded.size):
            ids = torch.from_numpy(padded).to(model.token_embedding.weight.device)
            logits = logits_of(ids[:, :-1])
            losses = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(len(batch), -1)
            numbers, best = losses.cpu().numpy(), logits.argmax(dim=-1).cpu().numpy()
        for row, (i, start, end, known) in enumerate(batch):
            predicted = slice(known - start, end - start)
            yield i, start, known, numbers[row, predicted], best[row, predicted]


def _bounds(n: int, size: int, stride: int, known: int) -> Iterator[tuple[int, int, int]]:
    """The windows of a text of n ids: each reads the ids from `start` up to `end` and predicts those after `known` of them.

    These are the windows of `windows_of`.
    """
    start = 0
    while known < n - 1:
        end = min(start + size, n - 1)
        yield start, end, known
        start, known = start + stride, max(known, end)
