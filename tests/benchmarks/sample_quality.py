"""What the faster ways of writing cost: the loss of each `--precision`, and of `--overflow refill` against `exact`.

    python tests/benchmarks/sample_quality.py TEXT RUN [RUN ...] [--cycles N]

The losses are of the last tenth of TEXT, in nats per character. With each precision, it is the validation loss, in windows that
begin without context. Past the context, refill predicts with a half to a full context and exact with a full one. Both predict the
same characters: whole cycles of refill, spread evenly. The error is the standard error of the difference's mean over cycles. The last
column counts the predictions of exact whose likeliest character is another one if the blocks of the model compute in bfloat16.
"""

import argparse
import math
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from chargpt.model import GPT  # noqa: E402
from chargpt.sampling.c_texts import PRECISIONS  # noqa: E402
from chargpt.sampling.loaded_model import load_model  # noqa: E402
from chargpt.sampling.surprisal import losses_of  # noqa: E402


def losses(logits: Tensor, targets: Tensor) -> Tensor:
    """The losses (N,) of predictions with logits (N, V)."""
    return F.cross_entropy(logits, targets, reduction="none")


class Comparison(NamedTuple):
    """Refill and exact on the same characters."""

    refill: float  # mean losses
    exact: float
    error: float  # the standard error of their difference
    predictions: int
    changed: int  # predictions of exact with another likeliest character in bfloat16


def logits_in_bfloat16(model: GPT, windows: Tensor) -> Tensor:
    """The logits (N, V) after windows (N, T), with the blocks in bfloat16; the product with the embedding is in float32."""
    last: list[Tensor] = []
    hook = model.norm.register_forward_hook(lambda module, inputs, normal: last.append(normal[:, -1].float()))
    with torch.autocast("cpu", torch.bfloat16):
        model(windows)
    hook.remove()
    return F.linear(last[0], model.token_embedding.weight)


@torch.inference_mode()
def compare(model: GPT, ids: Tensor, cycles: int) -> Comparison:
    """Compare on `cycles` whole cycles of refill."""
    T = model.config.block_size
    half = max(1, T // 2)
    pairs, predictions, changed = [], 0, 0
    for end in torch.linspace(2 * T, len(ids) - 1, cycles).long().tolist():
        targets = ids[end - T + half : end + 1]
        refill = losses(model(ids[None, end - T : end])[0, half - 1 :], targets)  # after half, half + 1, ... T ids
        windows = ids[end - len(targets) + 1 - T : end].unfold(0, T, 1)
        logits = model(windows)[:, -1]
        rounded = logits_in_bfloat16(model, windows)
        predictions += len(targets)
        changed += (rounded.argmax(dim=-1) != logits.argmax(dim=-1)).sum().item()
        pairs.append((refill.mean().item(), losses(logits, targets).mean().item()))
    refill, exact = np.array(pairs).T
    error = (refill - exact).std() / math.sqrt(cycles)
    return Comparison(refill.mean(), exact.mean(), error, predictions, changed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--cycles", type=int, default=500)
    arguments = parser.parse_args()
    text = arguments.text.read_text(encoding="utf-8")
    print(
        "| run | loss | "
        + " | ".join(f"{name}, more" for name in PRECISIONS[1:])
        + " | exact | refill, more | error | other in bfloat16 |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for run in arguments.runs:
        values = []
        for precision in PRECISIONS:
            loaded, _ = load_model(run, ROOT / "checkpoints", device="cpu", precision=precision)
            ids = np.array(loaded.tokenizer.encode_known(text[len(text) * 9 // 10 :])[0], np.int64)
            parts = losses_of(loaded.model, ids, stride=loaded.model.config.block_size)
            values.append(sum(part.sum(dtype=np.float64) for part in parts) / (len(ids) - 1))
            if precision == "float32":
                found = compare(loaded.model, torch.from_numpy(ids), arguments.cycles)
        more = " | ".join(f"{value - values[0]:+.5f}" for value in values[1:])
        past = f"{found.exact:.4f} | {found.refill - found.exact:+.4f} | {found.error:.4f}"
        print(f"| {run} | {values[0]:.4f} | {more} | {past} | {found.changed} of {found.predictions:,} |", flush=True)


if __name__ == "__main__":
    main()
