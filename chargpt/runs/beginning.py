"""A model that begins with the weights of a checkpoint, which may have another vocabulary."""

import dataclasses

import torch

from chargpt.errors import Option, UserError
from chargpt.formatting import shown
from chargpt.model import GPT
from chargpt.runs.blank_model import gpt_config
from chargpt.runs.checkpoint import Checkpoint
from chargpt.runs.checkpoint_schema import weight_shapes
from chargpt.text.tokenizer import Tokenizer

LISTED = 20  # characters that a line lists
UNKNOWN = -1  # in place of the row of a character


@torch.no_grad()
def start_from(source: Checkpoint, model: GPT, tokenizer: Tokenizer) -> str:
    """Copy the weights of `source` into `model`, and say how. A new character begins as its nearest known one, or else as the
    folded one, or as the mean of all. Raises UserError for a model of another shape, or whose vocabulary does not fit."""
    _check_form(source, model, tokenizer)
    before = source.state.tokenizer
    known = {character: i for i, character in enumerate(before.characters or "")}  # none where ids are bytes
    nearest = {new: new if new in known else before.nearest(new) for new in tokenizer.characters or ""}
    rows = [UNKNOWN if one is None else known[one] for one in nearest.values()] + [UNKNOWN] * tokenizer.folded
    is_same = (before.characters, before.folded) == (tokenizer.characters, tokenizer.folded)
    _copy_rows(source, model, rows=None if is_same else rows)
    about = {
        f"unknown to the model {source.run}, so each begins as the one in brackets, if there is one": [
            f"{one} ({by})" if by else one for one, by in nearest.items() if by != one
        ],
        "known to it, but not used here": [character for character in known if character not in nearest],
    }
    return "; ".join(_listed(what, characters) for what, characters in about.items() if characters)


def _check_form(source: Checkpoint, model: GPT, tokenizer: Tokenizer) -> None:
    """Raise UserError if `model` has another form than that of `source`, or reads characters where that reads bytes."""
    name, before = shown(source.path), source.state.tokenizer
    if (before.characters is None) != (tokenizer.characters is None):
        kind = "bytes" if before.characters is None else "characters"
        raise UserError(f"{name}: this model reads {kind}, and the new one would not; add ", Option("data.vocabulary", kind))
    if dataclasses.replace(gpt_config(source.state.config.model), dropout=model.config.dropout) != model.config:
        raise UserError(f"{name}: the size and form of this model are fixed; leave out model.*, except for model.dropout")


def _copy_rows(source: Checkpoint, model: GPT, *, rows: list[int] | None) -> None:
    """Copy the weights of `source` into `model`; of those with a row for each character these `rows`, unless it is None."""
    size, begun = source.state.tokenizer.vocab_size, model.state_dict()
    more = size + 97  # what is rounded up to a multiple grows otherwise
    for name, shape in weight_shapes(source.state.config.model, more).items():
        old = source.weights[name]
        if shape == old.shape or (rows is None and begun[name].shape == old.shape):
            begun[name].copy_(old)
        elif rows is None or (*old.shape[:1], *shape) != (size, more, *old.shape[1:]):
            where = f"{shown(source.path)}: {name} of model.py has no row for each character of another vocabulary"
            raise UserError(f"{where}; keep this one with ", Option("vocab_from", source.run))
        else:
            rest = old[-1] if source.state.tokenizer.folded else old.mean(0)
            begun[name].copy_(torch.stack([rest if row == UNKNOWN else old[row] for row in rows]))


def _listed(what: str, characters: list[str]) -> str:
    some = ", ".join(repr(character)[1:-1] for character in characters[:LISTED])
    return f"{what}: {some}" + f" and {len(characters) - LISTED:,} more" * (len(characters) > LISTED)
