"""The loss on text that the model has not trained on: all of it, always in the same order."""

import functools
import hashlib
import math
import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F

from chargpt.device import evaluating, send
from chargpt.interrupt import Interrupt
from chargpt.kernels.step import KernelModel
from chargpt.model import GPT
from chargpt.text.windows import IGNORED, Windows, windows_of, windows_of_items
from chargpt.training.group import FLAGS, Group

if TYPE_CHECKING:  # of a list of items
    from chargpt.text.item_stream import ItemMarks

# By these, the logits of a model are divided on trial: one that has read its text many times is too sure of itself (Guo et al.
# 2017, arXiv 1706.04599).
TEMPERATURES = (1.0, 1.06, 1.12, 1.2, 1.35)


def evaluate(model: GPT, ids: np.ndarray, *, marks: "ItemMarks | None" = None) -> float:
    """The mean loss in nats per character over all of `ids`, whatever signal comes: see `evaluate_at`."""
    losses = evaluate_at((1.0,), model, ids, marks=marks)
    assert losses is not None
    return losses[0]


@torch.no_grad()
def evaluate_at(
    temperatures: Sequence[float],
    model: GPT,
    ids: np.ndarray,
    *,
    kernel: KernelModel | None = None,
    marks: "ItemMarks | None" = None,
    interrupt: Interrupt | None = None,
    group: Group = Group(),
) -> list[float] | None:
    """The mean losses in nats per character over all of `ids`, one for each of the numbers `temperatures` by which the logits
    are divided; None if a signal came before the end.

    With `marks`, over the items in `ids` and their ends, each item alone, without labels: see `windows_of_items`. `kernel`
    computes the logits, if given. The processes of `group` share the batches; any number of them gives the same sum.
    Uses no random state, so evaluating never changes what a run learns. Each window starts without context, as in nanoGPT's
    own figures; a longer context would give a lower loss.
    """
    device = model.token_embedding.weight.device
    block_size = model.config.block_size
    batches: Iterable[Windows]
    if marks is None:
        batches, predicted = windows_of(ids, size=block_size, vocab_size=model.vocab_size), len(ids) - 1
        most = -(-predicted // block_size)  # a batch has a window at least
    else:
        batches = of_items = windows_of_items(ids, marks, size=block_size, vocab_size=model.vocab_size)
        most, predicted = len(of_items), max(1, sum(map(_predicted, of_items)))
    count = len(temperatures)
    sums = torch.zeros(most * count + FLAGS, dtype=torch.float64, device="cpu" if device.type == "mps" else device)
    with evaluating(model), group.summing(sums):
        for number, batch in enumerate(batches):
            if interrupt is not None and interrupt.came_here:
                break
            if number % group.size == group.rank and _predicted(batch):  # the mean over nothing is not a number
                inputs, targets = (send(torch.from_numpy(values.astype(np.int64)), device) for values in batch)
                if kernel is None and count == 1:  # the loss may be another one in a changed model.py
                    losses = [model(inputs, targets)]
                else:
                    logits = (model(inputs).float() if kernel is None else kernel.logits(inputs)).flatten(0, 1)
                    flat = targets.flatten()
                    losses = [F.cross_entropy(logits / one, flat, ignore_index=IGNORED) for one in temperatures]
                for place, loss in enumerate(losses, number * count):  # in this order: Metal has no float64
                    sums[place] = loss.to(sums.device).to(sums.dtype) * _predicted(batch)
    values = sums.tolist()
    group.read(values[-FLAGS:])
    if interrupt is not None and interrupt.agreed:
        return None
    # One after the other: the sum() of Python 3.12 rounds differently.
    return [functools.reduce(operator.add, values[at:-FLAGS:count], 0.0) / predicted for at in range(count)]


def _predicted(batch: Windows) -> int:
    """How many targets of a batch count."""
    return int((batch[1] != IGNORED).sum())


def validation_split(ids: np.ndarray, eval_chars: int) -> np.ndarray:
    """What an evaluation covers: the first `eval_chars` predictions; 0 is no limit. 150,000 give the loss to about 0.004."""
    return ids[: eval_chars + 1] if eval_chars else ids


def digest(models: Sequence[GPT]) -> str:
    """The first 12 hexadecimal digits of the SHA-256 of the weights of models."""
    sha256 = hashlib.sha256()
    for model in models:
        for parameter in model.parameters():
            sha256.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    return sha256.hexdigest()[:12]


def bits_per_item(loss: float, ids: np.ndarray, eval_chars: int, marks: "ItemMarks | None") -> float:
    """The same loss for an item of a list; 0 of any other text, and if it is of a part of an item."""
    return loss / math.log(2) * ((marks and marks.characters_per_item(validation_split(ids, eval_chars))) or 0)
