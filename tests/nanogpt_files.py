"""A model with nanoGPT's names and shapes, and files as its train.py and prepare.py write them; for tests, in a few lines."""

import pickle
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SHAPE = {"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 24, "bias": False, "dropout": 0.0}
SETTINGS = {
    "batch_size": 4,
    "gradient_accumulation_steps": 2,
    "max_iters": 30,
    "lr_decay_iters": 30,
    "eval_interval": 10,
    "log_interval": 5,
    "learning_rate": 1e-3,
    "min_lr": 1e-4,
    "weight_decay": 0.1,
    "beta1": 0.9,
    "beta2": 0.99,
    "grad_clip": 1.0,
    "warmup_iters": 3,
    "decay_lr": True,
    "dropout": 0.0,
    "dataset": "sea_char",
    "out_dir": "out",
}


class Norm(nn.Module):
    """LayerNorm with an optional bias."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias)


class Model(nn.Module):
    """A GPT with nanoGPT's parameter names."""

    def __init__(self, vocab_size: int, *, n_layer: int, n_head: int, n_embd: int, block_size: int, bias: bool, dropout: float):
        super().__init__()
        self.n_head, C = n_head, n_embd

        def block() -> nn.ModuleDict:
            attention = nn.ModuleDict({"c_attn": nn.Linear(C, 3 * C, bias=bias), "c_proj": nn.Linear(C, C, bias=bias)})
            mlp = nn.ModuleDict({"c_fc": nn.Linear(C, 4 * C, bias=bias), "c_proj": nn.Linear(4 * C, C, bias=bias)})
            return nn.ModuleDict({"ln_1": Norm(C, bias), "attn": attention, "ln_2": Norm(C, bias), "mlp": mlp})

        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocab_size, C),
                "wpe": nn.Embedding(block_size, C),
                "h": nn.ModuleList([block() for _ in range(n_layer)]),
                "ln_f": Norm(C, bias),
            }
        )
        self.lm_head = nn.Linear(C, vocab_size, bias=False)
        self.transformer["wte"].weight = self.lm_head.weight
        with torch.no_grad():
            for parameter in self.parameters():
                parameter += 0.1 * torch.randn_like(parameter)

    def forward(self, idx: Tensor) -> Tensor:
        B, T = idx.shape
        x = self.transformer["wte"](idx) + self.transformer["wpe"](torch.arange(T))
        for block in self.transformer["h"]:
            q, k, v = block["attn"]["c_attn"](block["ln_1"](x)).split(x.size(-1), dim=2)
            q, k, v = (part.view(B, T, self.n_head, -1).transpose(1, 2) for part in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, -1)
            x = x + block["attn"]["c_proj"](y)
            x = x + block["mlp"]["c_proj"](F.gelu(block["mlp"]["c_fc"](block["ln_2"](x))))
        return self.lm_head(self.transformer["ln_f"](x))


def new_optimizer(model: Model) -> torch.optim.Optimizer:
    """AdamW with nanoGPT's two groups."""
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99))


def take_step(model: Model, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor) -> float:
    """One step on a batch, clipped at norm 1; the loss."""
    loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def write_files(
    folder: Path,
    model: Model,
    optimizer: torch.optim.Optimizer | None,
    characters: str,
    /,
    *,
    step: int,
    bias: bool = False,
    **changes: object,
) -> Path:
    """ckpt.pt and meta.pkl; `changes` replace entries of the checkpoint."""
    folder.mkdir(exist_ok=True)
    checkpoint = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict() if optimizer else None,
        "model_args": {**SHAPE, "bias": bias, "vocab_size": len(characters)},
        "iter_num": step,
        "best_val_loss": torch.tensor(2.5),
        "config": SETTINGS,
    }
    torch.save({**checkpoint, **changes}, folder / "ckpt.pt")
    stoi = {character: token_id for token_id, character in enumerate(characters)}
    meta = {"vocab_size": len(characters), "itos": {token_id: c for c, token_id in stoi.items()}, "stoi": stoi}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))
    return folder
