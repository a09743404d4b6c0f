"""How surprised a model is by a text: the loss of each character."""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from chargpt.kernels.compiler import Unavailable
from chargpt.kernels.step import SOURCES, KernelModel, is_faster, step_kernel
from chargpt.model import GPT
from chargpt.text.windows import ids_at_once, windows_of

# Ids from which on it is worth loading a kernel, which packs all weights first.
WORTH_A_KERNEL = 10_000


def fastest_logits(model: GPT, ids: int) -> Callable[[Tensor], Tensor]:
    """What computes logits (B, T, V), float32, of idx (B, T), for about this many `ids`: the kernel of training, or torch."""
    weight = model.token_embedding.weight
    if ids >= WORTH_A_KERNEL and weight.is_cpu and weight.dtype in SOURCES and is_faster(model.config):
        with contextlib.suppress(Unavailable):
            return KernelModel.of(step_kernel(weight.dtype), model).logits
    return lambda idx: model(idx).float()


def surprisals(model: GPT, pieces: Iterable[np.ndarray], *, stride: int) -> Iterator[np.ndarray]:
    """The loss of each id of a text but the first: its negative log-likelihood given the ids before it, in nats, float32.

    `pieces` are the ids of the text in consecutive pieces. The values come in consecutive pieces too, one for each batch of
    `windows_of`. Use a model in evaluation mode.
    """
    return (losses for losses, _ in predictions_of(model, pieces, stride=stride))


@torch.inference_mode()
def predictions_of(model: GPT, pieces: Iterable[np.ndarray], *, stride: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """As `surprisals`: the losses, and for each of them the id that the model expected most, int64."""
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


def total_losses(
    model: GPT,
    texts: Sequence[np.ndarray],
    *,
    stride: int,
    threads: Callable[[int], AbstractContextManager[None]],
    given: Sequence[int] = (),
) -> np.ndarray:
    """The sum of the `surprisals` of each of the `texts` (ids), float64, (len(texts),), up to the rounding of float32.

    Of each text, this many ids after the first one are `given`, and not predicted (default: none).

    Windows of all texts are computed together, those of similar length in one batch. Each is filled up at its end, which a
    causal model does not see before. `threads(n)` is active while a batch of n ids is computed.
    """
    size = model.config.block_size
    windows = [
        (i, *bounds)
        for i, (ids, first) in enumerate(zip(texts, given or itertools.repeat(0)))
        for bounds in _bounds(len(ids), size, stride, first)
    ]
    windows.sort(key=lambda window: window[2] - window[1])
    totals = np.zeros(len(texts))
    most, logits_of = ids_at_once(model.vocab_size), fastest_logits(model, sum(map(len, texts)))
    while windows:
        longest = windows[-1][2] - windows[-1][1]
        batch = windows[-max(1, most // longest) :]
        del windows[-len(batch) :]
        padded = np.zeros((len(batch), longest + 1), np.int64)
        wanted = np.zeros((len(batch), longest), bool)
        for row, (i, start, end, known) in enumerate(batch):
            padded[row, : end - start + 1] = texts[i][start : end + 1]
            wanted[row, known - start : end - start] = True
        with threads(padded.size), torch.inference_mode():
            ids = torch.from_numpy(padded).to(model.token_embedding.weight.device)
            logits = logits_of(ids[:, :-1])
            losses = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(len(batch), -1)
        sums = (losses.double().cpu().numpy() * wanted).sum(axis=1)
        np.add.at(totals, [i for i, *_ in batch], sums)
    return totals


def _bounds(n: int, size: int, stride: int, known: int) -> Iterator[tuple[int, int, int]]:
    """The windows of a text of n ids: each reads the ids from `start` up to `end` and predicts those after `known` of them.

    These are the windows of `windows_of`.
    """
    start = 0
    while known < n - 1:
        end = min(start + size, n - 1)
        yield start, end, known
        start, known = start + stride, end
