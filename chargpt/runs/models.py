"""From a checkpoint to a model: one of its shape, with its weights, or begun with those of another vocabulary."""

import dataclasses
from collections.abc import Iterator

import torch

from chargpt.config import Config, ModelConfig
from chargpt.errors import NOT_FINITE, Damaged, Option, UserError
from chargpt.formatting import shown
from chargpt.model import GPT
from chargpt.runs.blank_model import blank_model, gpt_config
from chargpt.runs.checkpoint import Checkpoint, run_of
from chargpt.runs.checkpoint_schema import weight_shapes
from chargpt.standard import is_standard, model_loss
from chargpt.text.tokenizer import Tokenizer

LISTED = 20  # characters that a line lists
UNKNOWN = -1  # in place of the row of a character


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
        weights = model.attention(idx)
    except ValueError as problem:
        raise (UserError(f"model.py: {problem}") if model(idx).isfinite().all() else Damaged(NOT_FINITE)) from None
    if not weights.isfinite().all():
        raise Damaged(NOT_FINITE)
    return weights


def hidden_states_of(model: GPT, idx: torch.Tensor) -> torch.Tensor:
    """What the blocks of a model read and write on ids `idx` (B, T): (n_layer + 1, B, T, n_embd), the embeddings first."""
    found: list[torch.Tensor] = []
    first, *_ = model.blocks
    hooks = [first.register_forward_pre_hook(lambda _, given: found.append(given[0]))]
    hooks += [block.register_forward_hook(lambda _, given, written: found.append(written)) for block in model.blocks]
    try:
        model(idx)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(found)


def check_model(config: ModelConfig, vocab_size: int) -> None:
    """Raise UserError if model.py makes a model whose weights could not be saved and read again, or that gives no loss."""
    if not is_standard(config) and (problem := next(_problems(config, vocab_size), "")):
        raise UserError(f"model.py: {problem}")


def _problems(config: ModelConfig, vocab_size: int) -> Iterator[str]:
    """What is wrong with the GPT of model.py, and what to do."""
    model = blank_model(config, vocab_size)
    for name in ("config", "vocab_size", "token_embedding", "blocks"):
        if not hasattr(model, name):
            yield f"its GPT has no {name}, which chargpt reads; see docs/change-the-model.md"
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        idx = torch.zeros(1, min(2, config.block_size), dtype=torch.long)
        small = GPT(gpt_config(dataclasses.replace(config, n_layer=1)), vocab_size)
        found = small(idx), small(idx, idx)
    if [getattr(given, "shape", None) for given in found] != [(*idx.shape, vocab_size), ()]:
        yield "forward(idx) must return the logits (B, T, V) alone, and forward(idx, targets) the mean loss alone"
    learned = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    for name, tensor in model.state_dict().items():
        if name not in learned:
            yield f"{name} is saved, but is no parameter; register it with persistent=False, or make it an nn.Parameter"
        if tensor.dtype != torch.float32:
            yield f"{name} is {str(tensor.dtype).removeprefix('torch.')}, and weights are saved in float32; make it float32"


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
        f"unknown to the model {name_of_start(source)}, so each begins as the one in brackets, if there is one": [
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
            raise UserError(f"{where}; keep this one with ", Option("vocab_from", name_of_start(source)))
        else:
            rest = old[-1] if source.state.tokenizer.folded else old.mean(0)
            begun[name].copy_(torch.stack([rest if row == UNKNOWN else old[row] for row in rows]))


def _listed(what: str, characters: list[str]) -> str:
    some = ", ".join(repr(character)[1:-1] for character in characters[:LISTED])
    return f"{what}: {some}" + f" and {len(characters) - LISTED:,} more" * (len(characters) > LISTED)


def name_of_start(source: Checkpoint) -> str:
    """The name of the start, or of the run, whose checkpoint this is."""
    return run_of(source.path.resolve()).name
