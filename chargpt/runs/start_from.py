"""Starting from another run's weights: embeddings are matched by character, wherever their ids are now."""

import dataclasses

import torch

from chargpt.runs.checkpoint import Checkpoint
from chargpt.runs.load import restore_model
from chargpt.terminal import UserError, shown
from chargpt.text.tokenizer import Tokenizer
from model import GPT

EMBEDDING = "token_embedding.weight"


@torch.no_grad()
def start_from(source: Checkpoint, model: GPT, tokenizer: Tokenizer) -> str:
    """Copy the weights of `source` into `model`. Characters that are new to it keep their initial embeddings.

    Returns a line that says what was done. Raises UserError if the two models differ in shape, or if one reads bytes and the
    other characters.
    """
    old, old_tokenizer, _ = restore_model(source)
    if (old_tokenizer.characters is None) != (tokenizer.characters is None):
        raise UserError(
            f"{shown(source.path)}: one model reads bytes, the other characters; set data.vocabulary to what that run uses"
        )
    if dataclasses.replace(old.config, dropout=model.config.dropout) != model.config:
        raise UserError(f"{shown(source.path)}: its shape is different; of the model settings, change only model.dropout")
    weights = old.state_dict()
    rows = weights.pop(EMBEDDING)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert missing == [EMBEDDING] and not unexpected
    if tokenizer.characters is None:
        model.token_embedding.weight.copy_(rows)
        return f"{shown(source.path)}, all 256 bytes"
    old_ids = {character: id for id, character in enumerate(old_tokenizer.characters)}
    shared = [character for character in tokenizer.characters if character in old_ids]
    new_ids = [id for id, character in enumerate(tokenizer.characters) if character in old_ids]
    model.token_embedding.weight[new_ids] = rows[[old_ids[character] for character in shared]]
    added = [character for character in tokenizer.characters if character not in old_ids]
    dropped = [character for character in old_tokenizer.characters if character not in set(tokenizer.characters)]
    return f"{shown(source.path)}, {len(shared):,} characters in common{_listed('new', added)}{_listed('dropped', dropped)}"


def _listed(what: str, characters: list[str]) -> str:
    if not characters:
        return ""
    some = " ".join(repr(character)[1:-1] for character in characters[:20])
    return f"; {len(characters):,} {what}: {some}{' ...' if len(characters) > 20 else ''}"
