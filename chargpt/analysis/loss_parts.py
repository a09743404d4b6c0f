"""The loss of each character of a text, and its parts: by class of character, by position in the context, by confusion."""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chargpt.analysis.characters import characters_of, shown_character
from chargpt.analysis.classes import CLASSES, classes_of
from chargpt.text.tokenizer import Tokenizer
from model import GPT

LOGITS_AT_ONCE = 2**22  # limits the memory for any vocabulary


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """How a model predicted each id of a text but the first. Arrays (T - 1,)."""

    ids: np.ndarray  # (T,): the text
    losses: np.ndarray  # nats, float64
    best: np.ndarray  # the most likely id
    positions: np.ndarray  # how many ids of the context the model saw: 1 to block_size


@torch.inference_mode()
def predict(model: GPT, ids: Tensor) -> Predictions:
    """The predictions of `model` on ids (T,), in windows of block_size that start without context, as in training."""
    size, device = model.config.block_size, model.token_embedding.weight.device
    losses, best, positions = [], [], []
    rows = max(1, LOGITS_AT_ONCE // (size * model.vocab_size))
    whole = (len(ids) - 1) // size * size
    chunks = [(start, min(start + rows * size, whole), size) for start in range(0, whole, rows * size)]
    if whole < len(ids) - 1:
        chunks.append((whole, len(ids) - 1, len(ids) - 1 - whole))
    for start, end, length in chunks:
        targets = ids[start + 1 : end + 1].view(-1, length).to(device)
        log_probabilities = model(ids[start:end].view(-1, length).to(device)).float().log_softmax(dim=-1)
        losses.append(-log_probabilities.gather(-1, targets[..., None]).flatten().cpu())
        best.append(log_probabilities.argmax(dim=-1).flatten().cpu())
        positions.append(torch.arange(1, length + 1).expand(targets.shape).flatten())
    return Predictions(
        ids=ids.numpy(),
        losses=torch.cat(losses).double().numpy(),
        best=torch.cat(best).numpy(),
        positions=torch.cat(positions).numpy(),
    )


def report_of(predictions: Predictions, tokenizer: Tokenizer, *, block_size: int, most: int) -> dict[str, Any]:
    """The parts of the loss as JSON types; at most `most` confused pairs."""
    classes = classes_of(characters_of(predictions.ids, tokenizer))[1:]
    return {
        "loss": float(predictions.losses.mean()),
        "classes": loss_by_class(predictions, classes),
        "positions": loss_by_position(predictions, block_size),
        "last_doubling": last_doubling(predictions, block_size),
        "confused": confused_pairs(predictions, tokenizer, most),
    }


def loss_by_class(predictions: Predictions, classes: np.ndarray) -> list[dict[str, Any]]:
    """For each class in the text, its share of the characters and of the loss; the largest share of the loss first."""
    rows, losses, right = [], predictions.losses, predictions.best == predictions.ids[1:]
    total = losses.sum() or 1.0  # 0 for a vocabulary of one character
    for number, name in enumerate(CLASSES):
        chosen = classes == number
        if chosen.any():
            rows.append(
                {
                    "class": name,
                    "characters": int(chosen.sum()),
                    "share": float(chosen.mean()),
                    "loss": float(losses[chosen].mean()),
                    "share_of_loss": float(losses[chosen].sum() / total),
                    "right": float(right[chosen].mean()),
                }
            )
    return sorted(rows, key=lambda row: -row["share_of_loss"])


def loss_by_position(predictions: Predictions, block_size: int) -> list[dict[str, Any]]:
    """The loss by how many characters the model saw: 1, 2, 3 to 4, 5 to 8 and so on, and its standard error."""
    rows, first = [], 1
    while first <= block_size:
        last = min(block_size, 1 if first == 1 else 2 * (first - 1))
        losses = predictions.losses[(predictions.positions >= first) & (predictions.positions <= last)]
        if len(losses):
            row = {"first": first, "last": last, "characters": len(losses), "loss": float(losses.mean())}
            rows.append({**row, "error": _standard_error(losses)})
        first = last + 1
    return rows


def last_doubling(predictions: Predictions, block_size: int) -> dict[str, float | None]:
    """How much lower the loss is in the second half of the context than in the quarter before it, and the standard error.

    Both are compared within each whole window, so that easy and hard passages do not matter. The gain is None without one.
    """
    whole = len(predictions.losses) // block_size
    windows = predictions.losses[: whole * block_size].reshape(whole, block_size)
    if whole < 2 or block_size < 4:
        return {"gain": None, "error": None}
    gains = windows[:, block_size // 4 : block_size // 2].mean(axis=1) - windows[:, block_size // 2 :].mean(axis=1)
    return {"gain": float(gains.mean()), "error": _standard_error(gains)}


def confused_pairs(predictions: Predictions, tokenizer: Tokenizer, most: int) -> list[dict[str, Any]]:
    """The characters for which the model's first choice was most often a certain other one."""
    wrong = predictions.best != predictions.ids[1:]
    pairs = Counter(zip(predictions.ids[1:][wrong].tolist(), predictions.best[wrong].tolist()))
    rows = []
    for pair, times in pairs.most_common(most):
        character, prediction = map(shown_character, characters_of(pair, tokenizer))
        share = times / int(wrong.sum())
        rows.append({"character": character, "prediction": prediction, "times": times, "share_of_mistakes": share})
    return rows


def _standard_error(values: np.ndarray) -> float:
    return float(values.std() / math.sqrt(len(values)))
