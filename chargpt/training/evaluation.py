"""The loss on text that the model has not trained on: all of it, always in the same order."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from chargpt.interrupt import Interrupt
from chargpt.parallel.group import Group
from model import GPT

LOGITS_AT_ONCE = 2**22  # limits the memory of an evaluation for any vocabulary


def validation_batches(ids: np.ndarray, block_size: int, *, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut `ids` into consecutive windows of `block_size`; the last one may be shorter.

    Yields (inputs, targets), (B, T) each. Every id but the first is a target exactly once.
    """
    predictions = len(ids) - 1
    whole = predictions // block_size
    for first in range(0, whole, batch_size):
        rows = min(batch_size, whole - first)
        start = first * block_size
        chunk = torch.from_numpy(ids[start : start + rows * block_size + 1].astype(np.int64))
        yield chunk[:-1].view(rows, block_size), chunk[1:].view(rows, block_size)
    if predictions % block_size:
        chunk = torch.from_numpy(ids[whole * block_size :].astype(np.int64))
        yield chunk[None, :-1], chunk[None, 1:]


@torch.no_grad()
def evaluate(model: GPT, ids: np.ndarray, *, interrupt: Interrupt | None = None, group: Group = Group()) -> float | None:
    """The mean loss in nats per character over all of `ids`; None if a signal came before the end.

    The processes of `group` share the batches, whose losses are added in the order of the text by all of them.
    Uses no random state, so evaluating never changes what a run learns. Each window starts without context, as in nanoGPT's
    own figures; a longer context would give a lower loss.
    """
    was_training = model.training
    model.eval()
    device = model.token_embedding.weight.device
    block_size = model.config.block_size
    batch_size = max(1, min(LOGITS_AT_ONCE // model.vocab_size, 16384) // block_size)
    count = -(-(len(ids) - 1) // (batch_size * block_size))
    sums = torch.zeros(count + 1, dtype=torch.float64, device="cpu" if device.type == "mps" else device)
    try:
        for number, (inputs, targets) in enumerate(validation_batches(ids, block_size, batch_size=batch_size)):
            if interrupt is not None and interrupt.came:
                break
            if number % group.size == group.rank:
                loss = model(inputs.to(device), targets.to(device))
                sums[number] = loss.to(sums.device).to(sums.dtype) * targets.numel()  # in this order: Metal has no float64
    finally:
        model.train(was_training)
    by_rank, total = group.exchange(sums.tolist()), 0.0
    if interrupt is not None and interrupt():
        return None
    for number in range(len(sums)):  # one after the other: the sum() of Python 3.12 rounds differently
        total += by_rank[number % group.size][number]
    return total / (len(ids) - 1)


def validation_part(ids: np.ndarray, eval_chars: int) -> np.ndarray:
    """What an evaluation covers: all of `ids`, or of a long validation part the first `eval_chars` predictions; 0 is no limit.

    150,000 predictions determine the loss to about 0.004; more would only cost time.
    """
    return ids[: eval_chars + 1] if eval_chars else ids
