"""How surprised a model is by a text: the loss of each character, computed in windows that may overlap."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np
import torch
import torch.nn.functional as F

from model import GPT

NUMBERS_AT_ONCE = 2**22  # logits in a batch: limits the memory for any vocabulary
IDS_AT_ONCE = 2**14  # ids in a batch


@torch.inference_mode()
def surprisals(model: GPT, pieces: Iterable[np.ndarray], *, stride: int) -> Iterator[np.ndarray]:
    """The loss of each id of a text but the first: its negative log-likelihood given the ids before it, in nats, float32.

    `pieces` are the ids of the text in consecutive parts. The values come in consecutive parts too, a batch of windows at a
    time, so memory use does not depend on the length of the text. Use a model in evaluation mode.

    A window of block_size ids begins every `stride` ids. It predicts the ids that no window before it has predicted: the first
    one all of its ids, each other one the last `stride`, after at least block_size - stride ids of context. With a stride of
    block_size, each window begins without context: these are the windows of the validation loss.
    """
    size = model.config.block_size
    assert 1 <= stride <= size, (stride, size)
    batch_size = max(1, min(NUMBERS_AT_ONCE // model.vocab_size, IDS_AT_ONCE) // size)
    ids, known = np.empty(0, np.int64), 0  # the ids from the next window on, and how many of its predictions are known
    for piece in pieces:
        ids = np.concatenate((ids, piece))
        while len(ids) >= (batch_size - 1) * stride + size + 1:
            yield _losses(model, _windows(ids, size, stride)[:batch_size], stride, known)
            ids, known = ids[batch_size * stride :], size - stride
    if len(ids) > size:
        windows = _windows(ids, size, stride)
        yield _losses(model, windows, stride, known)
        ids, known = ids[len(windows) * stride :], size - stride
    if len(ids) - 1 > known:
        yield _losses(model, torch.from_numpy(ids)[None], stride, known)


def total_losses(
    model: GPT, texts: Sequence[np.ndarray], *, stride: int, threads: Callable[[int], AbstractContextManager[None]]
) -> np.ndarray:
    """The sum of the `surprisals` of each of the `texts` (ids), float64, (len(texts),), up to the rounding of float32.

    Windows of all texts are computed together, those of similar length in one batch. Each is filled up at its end, which a
    causal model does not see before. `threads(n)` is active while a batch of n ids is computed.
    """
    windows = [(i, *bounds) for i, ids in enumerate(texts) for bounds in _bounds(len(ids), model.config.block_size, stride)]
    windows.sort(key=lambda window: window[2] - window[1])
    totals = np.zeros(len(texts))
    most = max(1, min(NUMBERS_AT_ONCE // model.vocab_size, IDS_AT_ONCE))
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
            logits = model(ids[:, :-1]).float()
            losses = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(len(batch), -1)
        sums = (losses.double().cpu().numpy() * wanted).sum(axis=1)
        np.add.at(totals, [i for i, *_ in batch], sums)
    return totals


def _bounds(n: int, size: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """The windows of a text of n ids: each reads the ids from `start` up to `end` and predicts those after `known`.

    These are the windows of `surprisals`.
    """
    start = known = 0
    while known < n - 1:
        end = min(start + size, n - 1)
        yield start, end, known
        start, known = start + stride, end


def _windows(ids: np.ndarray, size: int, stride: int) -> torch.Tensor:
    """Every whole window of `ids` with the id that follows it, (B, size + 1)."""
    return torch.from_numpy(ids).unfold(0, size + 1, stride)


def _losses(model: GPT, windows: torch.Tensor, stride: int, known: int) -> np.ndarray:
    """The losses of the predictions in `windows` (B, T + 1) that are not known yet, in the order of the text, float32.

    The first `known` predictions of the first window are known, and of each other window all but the last `stride`.
    """
    windows = windows.to(model.token_embedding.weight.device)
    logits = model(windows[:, :-1]).float()
    losses = F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten(), reduction="none").view(len(windows), -1)
    return torch.cat((losses[0, known:], losses[1:, -stride:].flatten())).cpu().numpy()
