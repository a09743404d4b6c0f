"""From a checkpoint to a model of its shape, with its weights; and what is asked of a model."""

import dataclasses
from collections.abc import Iterator

import torch

from chargpt.config import ModelConfig
from chargpt.device import evaluating
from chargpt.errors import NOT_FINITE, Damaged, UserError
from chargpt.model import GPT
from chargpt.runs.blank_model import blank_model, gpt_config
from chargpt.runs.checkpoint import Checkpoint
from chargpt.standard import is_standard, model_loss


def restore_model(checkpoint: Checkpoint) -> GPT:
    """The model of a checkpoint, on the CPU."""
    model = blank_model(checkpoint.state.config.model, checkpoint.state.tokenizer.vocab_size)
    model.load_state_dict(checkpoint.weights)
    return model


@torch.no_grad()
def loss_of(model: GPT) -> float | None:
    """The `model_loss` of these weights. The mode of the model stays."""
    device, products = next(model.parameters()).device, torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        read = lambda ids: model(torch.tensor([ids], device=device))[0].float().cpu().numpy()  # noqa: E731
        with evaluating(model):
            return model_loss(read, model.config, model.vocab_size)
    finally:
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
