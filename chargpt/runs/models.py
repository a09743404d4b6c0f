"""From a checkpoint to a model: one of its shape, with its weights, or begun with those of another vocabulary."""

import dataclasses

import torch

from chargpt.config import Config, ModelConfig
from chargpt.errors import Option, UserError
from chargpt.model import GPT
from chargpt.runs.blank_model import blank_model, gpt_config
from chargpt.runs.checkpoint import Checkpoint, run_of
from chargpt.runs.model_shape import weight_shapes
from chargpt.standard import is_standard, model_loss
from chargpt.terminal import shown
from chargpt.text.tokenizer import Tokenizer

LISTED = 20  # characters that a line lists


def restore_model(checkpoint: Checkpoint) -> tuple[GPT, Tokenizer, Config]:
    """The model of a checkpoint, on the CPU; its tokenizer; its settings."""
    state = checkpoint.state
    model = blank_model(state.config.model, state.tokenizer.vocab_size)
    model.load_state_dict(checkpoint.weights)
    return model, state.tokenizer, state.config


@torch.no_grad()
def loss_of(model: GPT) -> float | None:
    """The `model_loss` of these weights. The mode of the model stays."""
    was_training, device, products = model.training, next(model.parameters()).device, torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    model.eval()
    try:
        read = lambda ids: model(torch.tensor([ids], device=device))[0].float().cpu().numpy()  # noqa: E731
        return model_loss(read, model.config, model.vocab_size)
    finally:
        model.train(was_training)
        torch.set_float32_matmul_precision(products)


def attention_of(model: GPT, idx: torch.Tensor) -> torch.Tensor:
    """The attention weights (n_layer, B, h, T, T) on ids `idx` (B, T). Raises UserError if a changed model.py gives none."""
    if not hasattr(model, "attention"):
        raise UserError("model.py: its GPT has no method attention(idx), which gives the weights to show; write one")
    try:
        return model.attention(idx)
    except ValueError as problem:
        raise UserError(f"model.py: {problem}") from None


def check_model(config: ModelConfig, vocab_size: int) -> None:
    """Raise UserError if model.py makes a model whose weights could not be saved and read again, or that gives no loss."""
    if is_standard(config):
        return
    model, what = blank_model(config, vocab_size), ""
    for name in ("config", "vocab_size", "token_embedding", "blocks"):
        if not hasattr(model, name):
            raise UserError(f"model.py: its GPT has no {name}, which chargpt reads; see docs/change-the-model.md")
    state, learned = model.state_dict(), dict(model.named_parameters(remove_duplicate=False))
    for name, tensor in state.items():
        if name not in learned:
            what = f"{name} is saved, but is no parameter; register it with persistent=False, or make it an nn.Parameter"
        elif tensor.dtype != torch.float32:
            what = f"{name} is {str(tensor.dtype).removeprefix('torch.')}, and weights are saved in float32; make it float32"
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        idx = torch.zeros(1, min(2, config.block_size), dtype=torch.long)
        small = GPT(gpt_config(dataclasses.replace(config, n_layer=1)), vocab_size)
        for given, shape in (((idx,), (*idx.shape, vocab_size)), ((idx, idx), ())):
            found = small(*given)
            if not isinstance(found, torch.Tensor) or tuple(found.shape) != shape:
                what = "forward(idx) must return the logits (B, T, V) alone, and forward(idx, targets) the mean loss alone"
    if what:
        raise UserError(f"model.py: {what}")


@torch.no_grad()
def start_from(source: Checkpoint, model: GPT, tokenizer: Tokenizer) -> str:
    """Copy the weights of `source` into `model`. A new character begins with the embedding of its nearest known one.

    Where no known character is near, it begins with that of the folded character, or with the mean of all. Returns a line that
    says what was done. Raises UserError if the two models differ in shape, if one reads bytes and the other characters, or if
    another vocabulary needs weights that no row of the old ones gives.
    """
    old, old_tokenizer, _ = restore_model(source)
    name = shown(source.path)
    if (old_tokenizer.characters is None) != (tokenizer.characters is None):
        kind = "bytes" if old_tokenizer.characters is None else "characters"
        raise UserError(f"{name}: this model reads {kind}, and the new one would not; add ", Option("data.vocabulary", kind))
    if dataclasses.replace(old.config, dropout=model.config.dropout) != model.config:
        raise UserError(f"{name}: the size and form of this model are fixed; leave out model.*, except for model.dropout")
    before, after = old_tokenizer.characters or "", tokenizer.characters or ""  # both empty where ids are bytes
    known, begun = {character: i for i, character in enumerate(before)}, model.state_dict()
    begins_at = {character: old_tokenizer.nearest(character) for character in after if character not in known}
    more = old.vocab_size + 97  # what is rounded up to a multiple grows otherwise
    grown = weight_shapes(source.state.config.model, more)
    for name_of, weights in old.state_dict().items():
        shape, same = tuple(weights.shape), before == after and weights.shape == begun[name_of].shape
        if same or shape == grown[name_of]:
            begun[name_of].copy_(weights)
            continue
        if shape[:1] + grown[name_of] != (old.vocab_size, more, *shape[1:]):
            what = f"{name}: {name_of} of model.py has no row for each character of another vocabulary; keep this one with "
            raise UserError(what, Option("vocab_from", name_of_start(source)))
        unknown = weights[-1] if old_tokenizer.folded else weights.mean(0)  # it has a row for each character
        for i, character in enumerate(after):
            nearest = begins_at.get(character, character)
            begun[name_of][i] = unknown if nearest is None else weights[known[nearest]]
        if tokenizer.folded:
            begun[name_of][-1] = unknown
    new = [f"{character} ({nearest})" if nearest else character for character, nearest in begins_at.items()]
    dropped = [character for character in before if character not in set(after)]
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
