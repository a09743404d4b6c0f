"""From a checkpoint to a model: one of its shape, with its weights, or begun with those of another vocabulary."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from chargpt.config import Config, ModelConfig
from chargpt.errors import Option, UserError
from chargpt.model import GPT, GPTConfig
from chargpt.runs.checkpoint import Checkpoint, run_of
from chargpt.terminal import shown
from chargpt.text.tokenizer import Tokenizer

EMBEDDING = "token_embedding.weight"
LISTED = 20  # characters that a line lists
RUN = "run "  # before the name of a run in `train.start`; a start that comes with the program has its name alone there


def gpt_config(shape: ModelConfig | GPTConfig) -> GPTConfig:
    """The config that a GPT of this shape is made with."""
    return GPTConfig(**vars(shape))


def blank_model(shape: ModelConfig | GPTConfig, vocab_size: int) -> GPT:
    """A float32 model whose weights are still to be loaded. Initial ones would cost seconds and change the random state."""
    with _WithoutInitialisation():
        return GPT(gpt_config(shape), vocab_size).float()  # whatever the default of the caller is


class _WithoutInitialisation(TorchFunctionMode):
    """Leaves new weights uninitialised. (torch's meta device would do as well, but takes more than a second to import.)"""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs.get("tensor", *args[:1])
        return func(*args, **kwargs)


def restore_model(checkpoint: Checkpoint) -> tuple[GPT, Tokenizer, Config]:
    """The model of a checkpoint, on the CPU; its tokenizer; its settings."""
    state = checkpoint.state
    model = blank_model(state.config.model, state.tokenizer.vocab_size)
    model.load_state_dict(checkpoint.weights)
    return model, state.tokenizer, state.config


@torch.no_grad()
def start_from(source: Checkpoint, model: GPT, tokenizer: Tokenizer) -> str:
    """Copy the weights of `source` into `model`. A new character begins with the embedding of its nearest known one.

    Where no known character is near, it begins with that of the folded character, or with the mean of all. Returns a line that
    says what was done. Raises UserError if the two models differ in shape, or if one reads bytes and the other characters.
    """
    old, old_tokenizer, _ = restore_model(source)
    name = shown(source.path)
    if (old_tokenizer.characters is None) != (tokenizer.characters is None):
        kind = "bytes" if old_tokenizer.characters is None else "characters"
        raise UserError(f"{name}: this model reads {kind}, and the new one would not; add ", Option("data.vocabulary", kind))
    if dataclasses.replace(old.config, dropout=model.config.dropout) != model.config:
        raise UserError(f"{name}: the size and form of this model are fixed; leave out model.*, except for model.dropout")
    weights = old.state_dict()
    rows = weights.pop(EMBEDDING)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert missing == [EMBEDDING] and not unexpected
    if tokenizer.characters is None or old_tokenizer.characters is None:
        model.token_embedding.weight.copy_(rows)
        return ""
    known = {character: i for i, character in enumerate(old_tokenizer.characters)}
    unknown = rows[-1] if old_tokenizer.folded else rows.mean(0)
    begins_at = {character: old_tokenizer.nearest(character) for character in tokenizer.characters if character not in known}
    for i, character in enumerate(tokenizer.characters):
        nearest = begins_at.get(character, character)
        model.token_embedding.weight[i] = unknown if nearest is None else rows[known[nearest]]
    if tokenizer.folded:
        model.token_embedding.weight[-1] = unknown
    new = [f"{character} ({nearest})" if nearest else character for character, nearest in begins_at.items()]
    dropped = [character for character in old_tokenizer.characters if character not in set(tokenizer.characters)]
    about = (
        (f"unknown to the model {name_of_start(source)}, so each begins as the one in brackets, if there is one", new),
        ("known to it, but not used here", dropped),
    )
    return "; ".join(_listed(what, characters) for what, characters in about if characters)


def _listed(what: str, characters: list[str]) -> str:
    some = ", ".join(repr(character)[1:-1] for character in characters[:LISTED])
    return f"{what}: {some}" + f" and {len(characters) - LISTED:,} more" * (len(characters) > LISTED)


def name_of_start(source: Checkpoint) -> str:
    """The name of the start, or of the run, whose checkpoint this is."""
    return run_of(source.path.resolve()).name
