"""What a reader of another program's files returns: everything that a run needs from them."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from chargpt.exchange.layouts import with_biases
from chargpt.runs.model_shape import check_size
from chargpt.terminal import UserError
from chargpt.text.tokenizer import Tokenizer
from model import SINUSOID_SCALE, GPTConfig, sinusoids


@dataclass(frozen=True, kw_only=True)
class ImportedModel:
    """A model from another program."""

    program: str
    shape: GPTConfig
    tokenizer: Tokenizer
    weights: dict[str, Tensor]  # by our names, float32
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)  # of its training, {section: {key: value}}, unchecked
    step: int = 0  # steps taken
    moments: Mapping[str, Tensor] | None = None  # the state of AdamW, by our names; None if there is none
    notes: list[str] = field(default_factory=list)  # what is different now, as sentences


def brief(value: object) -> str:
    """A value that another program's file holds, for a message: a text or a number, at most 40 characters, or its type.

    Only these are formatted: lists that contain a list twice, which contains another twice, become gigabytes of text.
    """
    plain = value is None or isinstance(value, (str, float)) or isinstance(value, int) and value.bit_length() < 200
    return f"{value!s:.40}" if plain else f"of type {type(value).__name__}"


def checked_shape(where: str, *, vocab_size: int, **fields: Any) -> GPTConfig:
    """A GPTConfig from numbers that anybody may have written. Raises UserError unless a model of that size may be built."""
    for name in ("n_layer", "n_head", "n_embd", "block_size"):
        if type(fields[name]) is not int or not 1 <= fields[name] < 2**31:
            raise UserError(f"{where}: {name} is {brief(fields[name])}; a whole number of 1 or more is needed")
    try:
        shape = GPTConfig(**fields)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: {error}") from None
    check_size(shape, vocab_size)
    return shape


def imported(
    program: str, shape: GPTConfig, tokenizer: Tokenizer, weights: dict[str, Tensor], *, ids: Sequence[int], **others: Any
) -> ImportedModel:
    """An ImportedModel of `weights` whose rows of embeddings are in the order of `ids`. `others` are its further fields.

    The shape gets biases if a bias is not zero, and sinusoidal positions if the table is the one that model.py computes.
    """
    embedding = "token_embedding.weight"
    weights[embedding] = weights[embedding][list(ids)]
    weights, bias = with_biases(weights)
    table = weights.get("position_embedding.weight")
    if table is not None and torch.equal(table, sinusoids(*table.shape) * SINUSOID_SCALE):
        del weights["position_embedding.weight"]
        shape = dataclasses.replace(shape, positions="sinusoidal")
    shape = dataclasses.replace(shape, bias=bias)
    return ImportedModel(program=program, shape=shape, tokenizer=tokenizer, weights=weights, **others)
