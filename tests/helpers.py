"""What several test files call: run folders with random models."""

from pathlib import Path

import torch

from chargpt.config import Config, to_dict
from chargpt.runs.checkpoint import mark_best, publish
from chargpt.text.tokenizer import Tokenizer
from model import GPT, GPTConfig

TOKENIZER = Tokenizer("\n abcdefgh中")


def publish_run(
    folder: Path, tokenizer: Tokenizer = TOKENIZER, *, steps: tuple[int, ...] = (500,), val_loss: float | None = 1.5
) -> Path:
    """A run of random models, each step's another; its best checkpoint is the first."""
    folder.mkdir(parents=True)
    config = Config(model=GPTConfig(n_layer=1, n_head=2, n_embd=16, block_size=16, bias=True))
    for step in steps:
        torch.manual_seed(step)
        model = GPT(config.model, tokenizer.vocab_size)
        state = {"config": to_dict(config), "tokenizer": tokenizer.to_json(), "val_loss": val_loss}
        path = publish(folder, step, weights=model.state_dict(), training={}, state=state)
        if step == steps[0]:
            mark_best(path, 1.5)
    return folder
