"""What several test files call: run folders with random models."""

from pathlib import Path

import torch

from chargpt.config import Config, TrainConfig, to_dict
from chargpt.runs.checkpoint import mark_best, publish
from chargpt.text.tokenizer import Tokenizer
from model import GPT, GPTConfig

TOKENIZER = Tokenizer("\n abcdefgh中")


SHAPE = GPTConfig(n_layer=1, n_head=2, n_embd=16, block_size=16, bias=True)


def publish_run(
    folder: Path,
    tokenizer: Tokenizer = TOKENIZER,
    *,
    shape: GPTConfig = SHAPE,
    steps: tuple[int, ...] = (500,),
    val_loss: float | None = 1.5,
    texts: list[str] | None = None,
    fingerprint: str = "0" * 64,
) -> Path:
    """A run of random models, another one at each step; its best checkpoint is the first."""
    folder.mkdir(parents=True)
    config = Config(model=shape, train=TrainConfig(batch_size=1))
    for step in steps:
        torch.manual_seed(step)
        model = GPT(config.model, tokenizer.vocab_size)
        state = {"config": to_dict(config), "tokenizer": tokenizer.to_json(), "val_loss": val_loss}
        state |= {"texts": texts or [], "fingerprint": fingerprint}
        path = publish(folder, step, weights=model.state_dict(), training={}, state=state)
        if step == steps[0]:
            mark_best(path, 1.5)
    return folder
