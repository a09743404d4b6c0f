"""Starting from another run's weights: what it knows of each character goes to that character, wherever its id is now."""

import dataclasses

import torch

from chargpt.runs.checkpoint import Checkpoint
from chargpt.runs.load import restore_model
from chargpt.terminal import UserError, shown
from chargpt.text.tokenizer import Tokenizer
from model import GPT

EMBEDDING = "token_embedding.weight"


@torch.no_grad()
def transplant(source: Checkpoint, model: GPT, tokenizer: Tokenizer) -> list[str]:
    """Copy the weights of `source` into `model`, embeddings by character; characters new to it keep their initial ones.

    Returns lines that say what was done. Raises UserError if the two models differ in shape, or one reads bytes and the
    other characters.
    """
    old, old_tokenizer, _ = restore_model(source)
    if (old_tokenizer.characters is None) != (tokenizer.characters is None):
        raise UserError(
            f"{shown(source.path)}: one model reads bytes, the other characters; set data.vocabulary as that run has it"
        )
    if dataclasses.replace(old.config, dropout=model.config.dropout) != model.config:
        raise UserError(f"{shown(source.path)}: another shape than asked for; set nothing of model but model.dropout")
    weights = old.state_dict()
    rows = weights.pop(EMBEDDING)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert missing == [EMBEDDING] and not unexpected
    if tokenizer.characters is None:
        model.token_embedding.weight.copy_(rows)
        return [f"{shown(source.path)}, all 256 bytes"]
    places = {character: id for id, character in enumerate(old_tokenizer.characters)}
    shared = [character for character in tokenizer.characters if character in places]
    new_ids = [id for id, character in enumerate(tokenizer.characters) if character in places]
    model.token_embedding.weight[new_ids] = rows[[places[character] for character in shared]]
    added = [character for character in tokenizer.characters if character not in places]
    dropped = [character for character in old_tokenizer.characters if character not in set(tokenizer.characters)]
    return [f"{shown(source.path)}, {len(shared):,} characters in common{_listed('new', added)}{_listed('dropped', dropped)}"]


def _listed(what: str, characters: list[str]) -> str:
    if not characters:
        return ""
    some = " ".join(repr(character)[1:-1] for character in characters[:20])
    return f"; {len(characters):,} {what}: {some}{' ...' if len(characters) > 20 else ''}"
